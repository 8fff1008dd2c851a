package waiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runlevel/runlevel/internal/cluster/waiter"
)

// TestPausesGrowWithTheWait looks five times, after pauses of half the wait within bounds.
func TestPausesGrowWithTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var looks []time.Duration
		w := waiter.Waiter{Pause: waiter.Pause{Shortest: time.Second, Longest: 2 * time.Second, PerWait: 0.5}}
		err := w.Until(t.Context(), func(context.Context) (waiter.Result, error) {
			looks = append(looks, time.Since(began))
			if len(looks) == 5 {
				return waiter.Done, nil
			}
			return waiter.Again, nil
		})
		wanted := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4500 * time.Millisecond}
		for i := range wanted {
			if looks[i] != wanted[i] {
				t.Errorf("look %d is after %s, want %s", i, looks[i], wanted[i])
			}
		}
		if err != nil {
			t.Errorf("the error is %v, want none", err)
		}
	})
}

// TestOutagesAreReportedAndDoNotEndAWait meets two outages, and then another error.
func TestOutagesAreReportedAndDoNotEndAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := []error{nil, waiter.Outage(errors.New("connection refused")), nil, errors.New("forbidden")}
		var reported []error
		w := waiter.Waiter{Report: func(_ context.Context, outage error) error {
			reported = append(reported, outage)
			return nil
		}}
		looks := 0
		err := w.Until(t.Context(), func(context.Context) (waiter.Result, error) {
			looks++
			return waiter.Again, failures[looks-1]
		})
		if err == nil || err.Error() != "forbidden" {
			t.Errorf("the error is %v, want forbidden", err)
		}
		if len(reported) != 3 || reported[0] != nil || !waiter.IsOutage(reported[1]) || reported[2] != nil {
			t.Errorf("reported %v, want no outage, an outage, and no outage", reported)
		}
	})
}

// TestReportsAreLimited expects the first report after three seconds, and then one per ten seconds.
func TestReportsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 24*time.Second, errors.New("timeout"))
		defer cancel()
		began := time.Now()
		var reports []time.Duration
		w := waiter.Waiter{
			Pause: waiter.Pause{Shortest: time.Second}, ReportAfter: 3 * time.Second, ReportInterval: 10 * time.Second,
			Report: func(context.Context, error) error {
				reports = append(reports, time.Since(began))
				return nil
			},
		}
		err := w.Until(ctx, func(context.Context) (waiter.Result, error) { return waiter.Again, nil })
		if err == nil || err.Error() != "timeout" {
			t.Errorf("the error is %v, want the cause of the context's end", err)
		}
		wanted := []time.Duration{3 * time.Second, 13 * time.Second, 23 * time.Second}
		if len(reports) != len(wanted) || reports[0] != wanted[0] || reports[1] != wanted[1] ||
			reports[2] != wanted[2] {
			t.Errorf("reports are at %v, want %v", reports, wanted)
		}
	})
}

// TestChangesAreAwaited looks once per signal, and ends when the channel is closed.
func TestChangesAreAwaited(t *testing.T) {
	changed := make(chan struct{}, 2)
	changed <- struct{}{}
	changed <- struct{}{}
	looks := 0
	err := waiter.Waiter{Changed: changed}.Until(t.Context(), func(context.Context) (waiter.Result, error) {
		if looks++; looks == 2 {
			close(changed)
		}
		return waiter.Again, nil
	})
	if err != nil || looks != 2 {
		t.Errorf("%d looks and error %v, want 2 looks and none", looks, err)
	}
}
