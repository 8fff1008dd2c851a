// Package report has the reports that clusters send about their updates: one for each change, to the update service.
// It checks and sends them, and keeps them in a log.
//
// Reports come from anyone who reaches the service. So each is small and printable, and the log has the address that it
// came from. The package judges none: package halt does.
//
// Start with Report, then Log.
package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/runlevel/runlevel/internal/text/printable"
)

// A Report is a change of an update on a cluster.
type Report struct {
	ID        string    `json:"id"`             // random, one for each cluster; not the cluster's ID
	From      string    `json:"from,omitempty"` // version before the update
	Version   string    `json:"version"`        // version of the update, also after a rollback
	Ring      string    `json:"ring,omitempty"`
	Condition Condition `json:"condition"`
	Reason    string    `json:"reason,omitempty"` // of a failure or a rollback
	Time      time.Time `json:"time"`             // on the clock of the cluster
}

// A Condition is what happened.
type Condition string

// The conditions of an update.
const (
	Began      Condition = "Began"
	Succeeded  Condition = "Succeeded"
	Failed     Condition = "Failed"
	RolledBack Condition = "RolledBack"
)

// The limits of a report.
const (
	MaxBytes  = 4 << 10 // as JSON
	MaxReason = 1 << 10
	maxName   = 128 // of a version or a ring
)

// An ID has 128 random bits in most encodings.
var idForm = regexp.MustCompile(`^[0-9A-Za-z_-]{16,64}$`)

// Parse reads a report, and checks it. It ignores unknown fields, which later versions of the operator may send.
func Parse(text []byte) (*Report, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("a report has at most %d bytes", MaxBytes)
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, errors.New("not a report: " + printable.Line(printable.Truncate(err.Error(), maxName)))
	}
	return r, r.validate()
}

func (r *Report) validate() error {
	switch {
	case !idForm.MatchString(r.ID):
		return errors.New("id has 16 to 64 letters, digits, - and _")
	case r.Version == "":
		return errors.New("version is missing")
	case r.Condition != Began && r.Condition != Succeeded && r.Condition != Failed && r.Condition != RolledBack:
		return errors.New("condition is one of Began, Succeeded, Failed, RolledBack")
	case r.Time.IsZero():
		return errors.New("time is missing")
	}
	texts := map[string]string{"from": r.From, "version": r.Version, "ring": r.Ring, "reason": r.Reason}
	for name, text := range texts {
		limit := maxName
		if name == "reason" {
			limit = MaxReason
		}
		switch {
		case len(text) > limit:
			return fmt.Errorf("%s has at most %d bytes", name, limit)
		case printable.Line(text) != text:
			return fmt.Errorf("%s has characters that cannot be printed in one line", name)
		}
	}
	return nil
}

const (
	maxPatience = 10 * time.Second
	maxAnswer   = 256 // bytes of an answer in an error
)

// Send sends a report to a URL, such as https://user:TOKEN@updates.example/reports; the service ignores the user. The
// error has one line, and neither URL nor token. A caller sends the report again until it is accepted.
func Send(ctx context.Context, client *http.Client, address string, r Report) error {
	r.Reason = printable.Truncate(printable.Line(r.Reason), MaxReason)
	if err := r.validate(); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, maxPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return errors.New("report not sent: its address is not a URL")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "runlevel")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("report not sent: %w", printable.Error(printable.RequestError(err)))
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer)) // only for the error
	if response.StatusCode/100 != 2 {
		return printable.Error(fmt.Errorf("report refused with %d %s: %s", response.StatusCode,
			http.StatusText(response.StatusCode), bytes.TrimSpace(answer)))
	}
	return nil
}
