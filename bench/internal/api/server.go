package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// A Server is an API server, as one user sees it.
type Server struct {
	address     string
	connections []*http.Client
	next        atomic.Uint32
}

// Open reads who to ask. Requests are spread over so many connections.
func Open(kubeconfig string, connections int) (*Server, error) {
	address, config, err := readKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	s := &Server{address: strings.TrimSuffix(address, "/")}
	for range max(connections, 1) {
		s.connections = append(s.connections, &http.Client{Transport: &http.Transport{
			TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true, DisableCompression: true,
		}})
	}
	return s, nil
}

// A Request is one, with the body as bytes of the type it names.
type Request struct {
	Method, Path, Type, Accept string
	Body                       []byte
}

// A Refusal is an answer that is none.
type Refusal struct {
	Code    int
	Message string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%d: %s", r.Code, r.Message) }

// Do sends a request, and gives the answer to read, if it is not nil. What is not
// read is thrown away.
func (s *Server) Do(ctx context.Context, r Request, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, r.Method, s.address+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return err
	}
	request.Header.Set("Accept", r.Accept)
	if r.Type != "" {
		request.Header.Set("Content-Type", r.Type)
	}
	client := s.connections[int(s.next.Add(1))%len(s.connections)]
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}()
	if response.StatusCode >= http.StatusBadRequest {
		return refusal(response)
	}
	if read == nil {
		return nil
	}
	return read(response.Body)
}

// Get reads what is at a path into a value.
func (s *Server) Get(ctx context.Context, path, accept string, into any) error {
	return s.Do(ctx, Request{Method: http.MethodGet, Path: path, Accept: accept}, func(body io.Reader) error {
		return json.NewDecoder(body).Decode(into)
	})
}

func refusal(response *http.Response) error {
	content, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	var status struct{ Message string }
	if json.Unmarshal(content, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(content))
	}
	return &Refusal{Code: response.StatusCode, Message: status.Message}
}
