package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// A span is what was counted while something was done.
type span struct {
	Of         string         `json:"of"`    // who did it
	Fleet      string         `json:"fleet"` // to what
	Phase      string         `json:"phase"`
	Machines   int            `json:"machines"`
	Seconds    float64        `json:"seconds"`
	Requests   map[string]int `json:"requests"` // by verb and resource
	Reconciles float64        `json:"reconciles,omitempty"`
	CPU        float64        `json:"cpuSeconds,omitempty"`
	MB         float64        `json:"mb,omitempty"`     // resident, in the end
	PeakMB     float64        `json:"peakMB,omitempty"` // and at most
}

// A meter measures the controller.
type meter struct {
	pid    int
	audit  *auditLog
	url    string // of its metrics
	token  string
	client *http.Client
}

func newMeter(pid int, audit, url, token string) *meter {
	// The controller makes a certificate of its own where it is given none.
	insecure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return &meter{pid: pid, audit: &auditLog{file: audit, account: controllerAccount}, url: url, token: token, client: &http.Client{Transport: insecure}}
}

// during measures what the controller does until a function returns.
func (m *meter) during(ctx context.Context, s span, do func() error) (span, error) {
	before, err := m.scrape(ctx)
	if err != nil {
		return s, err
	}
	if err := errors.Join(m.audit.skip(), m.forgetPeak()); err != nil {
		return s, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return s, err
	}
	s.Of, s.Seconds = cmp.Or(s.Of, "Runlevel"), time.Since(began).Seconds()
	if err := m.settle(ctx, &s); err != nil {
		return s, err
	}
	after, err := m.scrape(ctx)
	if err != nil {
		return s, err
	}
	const reconciles, cpu = "controller_runtime_reconcile_total", "process_cpu_seconds_total"
	s.Reconciles, s.CPU = after[reconciles]-before[reconciles], after[cpu]-before[cpu]
	s.MB, s.PeakMB, err = memory(m.pid)
	return s, err
}

// settle counts requests until there have been none for a while but those of the Lease. Some come late: events are told
// in the background. A span at rest ends when it ends.
func (m *meter) settle(ctx context.Context, s *span) error {
	requests, err := m.audit.read()
	s.Requests = requests
	if err != nil || s.Phase == atRest {
		return err
	}
	quiet := time.Now()
	return wait.PollUntilContextTimeout(ctx, look, patience, true, func(context.Context) (bool, error) {
		more, err := m.audit.read()
		for name, count := range more {
			s.Requests[name] += count
			if !isLease(name) {
				quiet = time.Now()
			}
		}
		return time.Since(quiet) > restless, err
	})
}

// isLease says whether requests are those that keep the Lease, which depend on the time and on nothing else.
func isLease(name string) bool { return strings.HasSuffix(name, " leases") }

// scrape reads the controller's metrics, those of a name added up.
func (m *meter) scrape(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+m.token)
	response, err := m.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the controller's metrics: %s", response.Status)
	}
	return sums(response.Body)
}

// sums adds up the values of each name in the text format of metrics.
func sums(text io.Reader) (map[string]float64, error) {
	all := map[string]float64{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		if line := lines.Text(); !strings.HasPrefix(line, "#") {
			value, _ := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			all[line[:strings.IndexAny(line, "{ ")]] += value
		}
	}
	return all, lines.Err()
}

// forgetPeak has the kernel start over to note the most memory that the controller has.
func (m *meter) forgetPeak() error {
	return os.WriteFile(filepath.Join("/proc", fmt.Sprint(m.pid), "clear_refs"), []byte("5"), 0)
}

// memory returns the resident memory of a process, and the most that it had, in MB.
func memory(pid int) (now, peak float64, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 2:
		case fields[0] == "VmRSS:":
			now, err = strconv.ParseFloat(fields[1], 64)
		case fields[0] == "VmHWM:":
			peak, err = strconv.ParseFloat(fields[1], 64)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return now / 1000, peak / 1000, nil // Linux says it in kB
}

// An auditLog counts the requests of a service account that are in the audit log.
type auditLog struct {
	file    string
	account string
	offset  int64
}

// skip has what was written so far count for nothing.
func (a *auditLog) skip() error {
	_, err := a.read()
	return err
}

// read counts what was written since it was last read. The API server puts a log that is full aside, and begins another one:
// all of them are one text, and none is removed.
func (a *auditLog) read() (map[string]int, error) {
	files, err := filepath.Glob(strings.TrimSuffix(a.file, ".log") + "-*.log") // by the times at which they were full
	if err != nil {
		return nil, err
	}
	counts, skipped := map[string]int{}, a.offset
	for _, file := range append(files, a.file) {
		if skipped, err = a.count(file, skipped, counts); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// count counts what is in a file from an offset on, and returns by how much the offset is beyond its end.
func (a *auditLog) count(path string, offset int64, counts map[string]int) (beyond int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if offset >= info.Size() {
		return offset - info.Size(), nil
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return 0, err
	}
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what has no end is being written
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		a.offset += int64(len(line))
		if name := a.requestOf(line); name != "" {
			counts[name]++
		}
	}
}

// requestOf returns the verb and the resource of a request of the account. Those that ask who reads the metrics are left
// out: it is us.
func (a *auditLog) requestOf(line []byte) string {
	var request struct {
		Verb      string
		User      struct{ Username string }
		ObjectRef struct{ Resource, Subresource string }
	}
	err := json.Unmarshal(line, &request)
	resource := request.ObjectRef.Resource
	if err != nil || !strings.HasSuffix(request.User.Username, ":"+a.account) || resource == "tokenreviews" || resource == "subjectaccessreviews" {
		return ""
	}
	if request.ObjectRef.Subresource != "" {
		resource += "/" + request.ObjectRef.Subresource
	}
	return request.Verb + " " + resource
}
