package session

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/pkg/apply"
)

// TestOutages checks which errors of an apply count as outages of the API server. A test can't force a real server to
// return each of these errors.
func TestOutages(t *testing.T) {
	notRenewed := fmt.Errorf("release %q: %w: it could not be renewed", "shop", lock.ErrLost)
	noAnswer := fmt.Errorf("release %q: get leases: %w", "shop", &url.Error{Op: "Get", URL: "https://x", Err: io.EOF})
	noStore := fmt.Errorf("release %q: get leases: %w", "shop",
		apierrors.NewInternalError(errors.New("etcdserver: no leader")))
	for name, c := range map[string]struct {
		report *apply.Report
		err    error
		want   bool
	}{
		"the lock was not renewed":       {&apply.Report{}, notRenewed, true},
		"no answer at the beginning":     {nil, noAnswer, true},
		"an answer of a server in need":  {nil, noStore, true},
		"a right is missing":             {nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil), false},
		"an apply that meets no answer":  {&apply.Report{}, noAnswer, false},
		"another error at the beginning": {nil, errors.New("no"), false},
		"no error":                       {&apply.Report{}, nil, false},
	} {
		if got := isOutage(&Outcome{Report: c.report, Err: c.err}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
