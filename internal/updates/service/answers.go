package service

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/internal/updates/report"
)

// Answers are the graphs by channel and architecture, and the one of all other channels.
type answers struct {
	graphs map[[2]string]*answer
	empty  *answer
}

// An answer is a graph. Nearly all clients take it compressed, so it is not kept in two forms.
type answer struct {
	compressed []byte
	tag        string
}

// counts are metrics.
type counts struct{ graphs, unchanged, reports, refused, halts atomic.Int64 }

// build builds the graphs.
func build(data *graphdata.Data, now time.Time) (*answers, error) {
	empty, err := newAnswer(data.Graph("", "", now))
	if err != nil {
		return nil, err
	}
	all := &answers{map[[2]string]*answer{}, empty}
	for _, channel := range data.ChannelNames() {
		for _, arch := range data.Architectures() {
			if all.graphs[[2]string{channel, arch}], err = newAnswer(data.Graph(channel, arch, now)); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func newAnswer(graph *graphdata.Graph) (*answer, error) {
	text, err := json.Marshal(graph)
	if err != nil {
		return nil, err
	}
	var compressed bytes.Buffer
	writer := gzip.NewWriter(&compressed)
	_, err = writer.Write(text)
	if err = errors.Join(err, writer.Close()); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return &answer{
		compressed: bytes.Clone(compressed.Bytes()),
		tag:        fmt.Sprintf(`W/"%x"`, sum[:12]), // weak, since it is the same for both encodings
	}, nil
}

// Handler returns the handler of all paths.
func (s *Service) Handler() http.Handler {
	paths := http.NewServeMux()
	paths.HandleFunc("GET /graph", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		channel, arch := query.Get("channel"), cmp.Or(query.Get("arch"), "amd64")
		if channel == "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"kind":"missing_params","value":"mandatory client parameters missing: channel"}`)
			return
		}
		all := s.answers.Load()
		graph, isKnown := all.graphs[[2]string{channel, arch}]
		if !isKnown {
			graph = all.empty
		}
		s.serve(w, r, graph)
	})
	paths.HandleFunc("GET /{channel}/{file}", func(w http.ResponseWriter, r *http.Request) {
		arch, isJSON := strings.CutSuffix(r.PathValue("file"), ".json")
		graph, isKnown := s.answers.Load().graphs[[2]string{r.PathValue("channel"), arch}]
		if !isKnown || !isJSON {
			http.NotFound(w, r)
			return
		}
		s.serve(w, r, graph)
	})
	paths.HandleFunc("POST /reports", s.take)
	paths.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	paths.HandleFunc("GET /metrics", s.serveMetrics)
	return paths
}

func (s *Service) serve(w http.ResponseWriter, r *http.Request, a *answer) {
	headers := w.Header()
	headers.Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int(s.options.MaxAge.Seconds())))
	headers.Set("ETag", a.tag)
	headers.Set("Vary", "Accept-Encoding")
	known := r.Header.Get("If-None-Match")
	if known == "*" || strings.Contains(known, strings.TrimPrefix(a.tag, "W/")) {
		s.counts.unchanged.Add(1)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	s.counts.graphs.Add(1)
	headers.Set("Content-Type", "application/json")
	accepted := strings.ReplaceAll(r.Header.Get("Accept-Encoding"), " ", "")
	if strings.Contains(accepted, "gzip") && !strings.Contains(accepted, "gzip;q=0") {
		headers.Set("Content-Encoding", "gzip")
		headers.Set("Content-Length", strconv.Itoa(len(a.compressed)))
		_, _ = w.Write(a.compressed) // an error is one of the connection
		return
	}
	if text, err := gzip.NewReader(bytes.NewReader(a.compressed)); err == nil && r.Method != http.MethodHead {
		_, _ = io.Copy(w, text)
	}
}

// take takes a report.
func (s *Service) take(w http.ResponseWriter, r *http.Request) {
	code, err := s.accept(r)
	if err != nil {
		s.counts.refused.Add(1)
		http.Error(w, err.Error(), code)
		return
	}
	s.counts.reports.Add(1)
	w.WriteHeader(code)
}

func (s *Service) accept(r *http.Request) (code int, err error) {
	if s.log == nil {
		return http.StatusNotFound, errors.New("this service takes no reports")
	}
	hasToken := s.hasToken(r)
	if s.options.Token != "" && !hasToken {
		return http.StatusUnauthorized, errors.New("a report needs the token of the service")
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, report.MaxBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("a report has at most %d bytes", report.MaxBytes)
	} else if err != nil {
		return http.StatusBadRequest, errors.New("the report has not arrived")
	}
	parsed, err := report.Parse(text)
	if err != nil {
		return http.StatusBadRequest, err
	}
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	entry := report.Entry{Received: s.options.Now().UTC(), Address: address, HasToken: hasToken, Report: parsed}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.versions[parsed.Version] {
		return http.StatusBadRequest, errors.New("the service has no release of this version")
	}
	isNew, err := s.log.Append(entry)
	if isNew || err != nil {
		s.tallies.add(entry) // a report that can't be written may still halt an update
	}
	if err != nil {
		s.note("log", err)
		return http.StatusServiceUnavailable, errors.New("the report is not in the log: send it again later")
	}
	return http.StatusNoContent, nil
}

// hasToken reports whether a request has the token, as a bearer token or as a password.
func (s *Service) hasToken(r *http.Request) bool {
	_, token, isBasic := r.BasicAuth()
	if !isBasic {
		token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	return s.options.Token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(s.options.Token)) == 1
}

func (s *Service) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for name, count := range map[string]*atomic.Int64{
		"graphs": &s.counts.graphs, "unchanged": &s.counts.unchanged, "reports": &s.counts.reports,
		"refused_reports": &s.counts.refused, "halts": &s.counts.halts,
	} {
		name = "runlevel_updates_" + name + "_total"
		fmt.Fprintf(w, "# TYPE %s counter\n%[1]s %[2]d\n", name, count.Load())
	}
}
