package operator

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/operator/automatic"
	"github.com/runlevel/runlevel/internal/operator/clusterversion"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/releasetest"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/apply/object"
	"github.com/runlevel/runlevel/pkg/payload"
)

// testsOf returns the tests that have to pass after an automatic update; nil if there are none.
func testsOf(release *payload.Payload) *automatic.Tests {
	if len(release.Tests) == 0 {
		return nil
	}
	return &automatic.Tests{}
}

// unpassedTests returns the tests of the current release that have not all passed; nil if there are none.
func (m *stateMachine) unpassedTests() *automatic.Tests {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return nil
	}
	return m.current.tests
}

// beginTests begins the tests of the current release, unless they have begun.
func (m *stateMachine) beginTests() {
	var current *currentRelease
	m.update(func() {
		if r := m.current; r != nil && r.tests != nil && !r.tests.HasBegun {
			current, r.tests = r, &automatic.Tests{HasBegun: true}
		}
	})
	if current != nil {
		m.group.Go(func() error {
			current.runTests()
			return nil
		})
	}
}

// retryTests is the pause before tests that an outage has prevented begin again.
const retryTests = 10 * time.Second

// runTests runs the tests of the release, and sets their result. They end with the release.
func (r *currentRelease) runTests() {
	m, release := r.machine, r.release.payload
	var result *automatic.Tests
	switch failure, err := m.testFailure(r.ctx, release); {
	case r.ctx.Err() != nil:
		return
	case cluster.IsOutage(err):
		object.Pause(r.ctx, retryTests)
		result = testsOf(release)
	case err != nil:
		result = &automatic.Tests{HasBegun: true, Failure: "they can't run: " + err.Error()}
	case failure != "":
		result = &automatic.Tests{HasBegun: true, Failure: failure}
	}
	if result != nil && result.Failure != "" {
		message := fmt.Sprintf("Tests of %s failed: %s", release.Version, result.Failure)
		ctrl.Log.WithName("tests").Info(message)
		m.events.write(r.ctx, clusterversion.Event{
			Reason: releasetest.ReasonFailed, IsWarning: true, Message: message,
		})
	}
	m.update(func() { r.tests = result })
}

// testFailure runs the tests of a release, and returns those that have failed, in one line; "" if all have passed. The
// record has the results, too.
func (m *stateMachine) testFailure(ctx context.Context, release *payload.Payload) (string, error) {
	_, err := releasetest.Check(ctx, m.cluster, m.options.Namespace, payload.DefaultName, release.Tests)
	if err != nil {
		return "", err
	}
	report := releasetest.Run(ctx, m.cluster, release, release.Tests, releasetest.Options{Logs: releasetest.NoLogs})
	if err := m.session.Note(ctx, func(known *record.Record) { report.NoteIn(known) }); err != nil && ctx.Err() == nil {
		ctrl.Log.WithName("tests").Error(err, "results not recorded")
	}
	var failed []string
	for _, result := range report.Tests {
		if result.State != releasetest.Passed {
			failed = append(failed, fmt.Sprintf("%s: %s", result.Object, result.Message))
		}
	}
	return printable.Line(printable.Few(failed, 3)), nil
}
