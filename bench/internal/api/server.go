package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A Server is an API server, as one user sees it.
type Server struct {
	address, token string
	client         *http.Client
}

// Open reads who to ask.
func Open(kubeconfig string) (*Server, error) {
	to, err := readKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: to.tls, ForceAttemptHTTP2: true, DisableCompression: true}
	return &Server{strings.TrimSuffix(to.address, "/"), to.token, &http.Client{Transport: transport}}, nil
}

// JSON is the plainest answer there is.
const JSON = "application/json"

// A Request is one, with the body as bytes of the type it names.
type Request struct {
	Method, Path, Type, Accept string
	Body                       []byte
}

// Do sends a request, and gives the answer to read, if it is not nil. What is not
// read is thrown away.
func (s *Server) Do(ctx context.Context, r Request, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, r.Method, s.address+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return err
	}
	request.Header.Set("Accept", r.Accept)
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	if r.Type != "" {
		request.Header.Set("Content-Type", r.Type)
	}
	response, err := s.client.Do(request)
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
	return fmt.Errorf("%d: %s", response.StatusCode, status.Message)
}
