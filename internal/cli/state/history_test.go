package state

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
)

// Each user who may write the ConfigMap of a record may have edited its text.
func TestHistoryEscapesTextOfRecords(t *testing.T) {
	const hostile = "1.0\x1b[31m\u202e\u2066\nfaked line\tx"
	known := &record.Record{
		Release: hostile,
		History: record.History{{
			State:   record.Completed,
			Version: hostile,
			Mode:    hostile,
			Source:  hostile,
			Forced:  []string{hostile},
		}},
		Waits: []record.ObjectWait{{ID: kinds.ID{Kind: hostile, Name: hostile}, For: hostile}},
	}
	var out bytes.Buffer
	if err := printHistory(&out, known, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\u202e\u2066\t") || strings.Contains(out.String(), "\nfaked") {
		t.Errorf("control characters are not escaped: %q", out.String())
	}
}
