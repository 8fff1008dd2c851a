// Package releasetest is the engine of "runlevel test". It runs the tests of a release on a cluster: Jobs and Pods
// that an apply leaves out. It creates each test, waits for its end, and deletes it if it has passed.
//
// It holds no lock, since it writes no object of the release, and it does not know where the tests come from: package
// payload finds them among the manifests. How results are printed is decided above it.
//
// Check returns why the tests of a release can't run now. Call it before Run. Start with Run.
package releasetest

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// DefaultTimeout limits the duration of a test.
const DefaultTimeout = 5 * time.Minute

// A LogChoice selects the tests whose logs are read.
type LogChoice string

// The choices.
const (
	FailedLogs LogChoice = "failed" // the last lines of those that have not passed
	AllLogs    LogChoice = "all"    // the whole logs of all
	NoLogs     LogChoice = "none"
)

// Options configure a run of tests.
type Options struct {
	Timeout time.Duration // timeout of each test; 0 means DefaultTimeout
	Keep    bool          // the tests, also those that pass
	Logs    LogChoice     // FailedLogs if it is empty
	OnEvent func(Event)
}

// An Event is a change of a test that runs.
type Event struct {
	Result Result   // its State is Running until it has ended
	Waits  []string // why the test has not ended yet
}

// A State is the state of a test.
type State string

// The states.
const (
	Running     State = "running"
	Passed      State = "passed"
	Failed      State = "failed"
	TimedOut    State = "timed-out"
	Interrupted State = "interrupted"
	NotRun      State = "not-run" // the tests before it were interrupted
)

// A Report is the result of the tests of a release.
type Report struct {
	Release     string   `json:"release"`
	Version     string   `json:"version,omitempty"`
	Done        bool     `json:"done"` // all have passed
	Passed      int      `json:"passed"`
	Failed      int      `json:"failed,omitempty"` // includes tests that were not done in time
	NotRun      int      `json:"notRun,omitempty"` // includes the interrupted test
	Tests       []Result `json:"tests"`
	Seconds     float64  `json:"seconds"`
	Interrupted error    `json:"-"` // why not all have run; nil if they have
	hash        string   // hash of the release
}

// A Result is the result of one test.
type Result struct {
	Object     kinds.ID    `json:"object"`
	File       string      `json:"file"`
	State      State       `json:"state"`
	Message    string      `json:"message,omitempty"` // why it has not passed
	Why        []string    `json:"why,omitempty"`     // the problems of its pods
	Containers []Container `json:"containers,omitempty"`
	Seconds    float64     `json:"seconds"`
	IsLeft     bool        `json:"left,omitempty"` // it is on the cluster still
}

// A Container is a container of the last pod of a test.
type Container struct {
	Pod      string   `json:"pod"`
	Name     string   `json:"name"`
	ExitCode *int32   `json:"exitCode,omitempty"` // set if the container has ended
	Log      []string `json:"log,omitempty"`
}

// Run runs tests of a release, one after the other. When the context ends, the test that runs is left as it is.
func Run(ctx context.Context, c *cluster.Cluster, release *payload.Payload, tests []*payload.Manifest,
	o Options) *Report {
	o.Timeout, o.Logs = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Logs, FailedLogs)
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	r := &runner{cluster: c, release: release.Name, options: o}
	began, report := time.Now(),
		&Report{Release: release.Name, Version: release.Version, hash: release.Hash, Tests: []Result{}}
	for _, m := range tests {
		result := Result{Object: m.ID(), File: m.Path, State: NotRun}
		if ctx.Err() == nil {
			result = r.run(ctx, m)
		}
		report.add(result)
	}
	if ctx.Err() != nil && report.NotRun > 0 {
		report.Interrupted = context.Cause(ctx)
	}
	report.Done, report.Seconds = report.Passed == len(tests), seconds(began)
	return report
}

// add adds the result of a test.
func (r *Report) add(result Result) {
	r.Tests = append(r.Tests, result)
	switch result.State {
	case Passed:
		r.Passed++
	case Interrupted, NotRun:
		r.NotRun++
	default:
		r.Failed++
	}
}

// seconds returns the time since a test began.
func seconds(began time.Time) float64 { return time.Since(began).Round(time.Millisecond).Seconds() }

// errTimeout is the cause of the end of a test that has exceeded its timeout.
var errTimeout = errors.New("timeout")
