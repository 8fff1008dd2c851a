package resourcewatch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/runlevel/runlevel/internal/cluster/resourcewatch"
)

func TestIsOlder(t *testing.T) {
	for _, c := range []struct {
		version, than string
		want          bool
	}{
		{"9", "10", true}, // they are numbers, not texts
		{"10", "9", false},
		{"10", "10", false},
		{"10", "", false}, // nothing is known yet
		{"a", "b", false}, // versions of a server that does not count
	} {
		if got := resourcewatch.IsOlder(c.version, c.than); got != c.want {
			t.Errorf("%q is older than %q: %v", c.version, c.than, got)
		}
	}
}

// noHandler is a handler that does nothing.
type noHandler struct{}

func (noHandler) OnChange(*metav1.PartialObjectMetadata, bool)   {}
func (noHandler) OnList([]*metav1.PartialObjectMetadata, string) {}

// The pauses between retries of a refused watch grow up to the maximum.
func TestRetriesOfARefusedWatch(t *testing.T) {
	const longest, lasts = 15 * time.Second, 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		refused, tries := errors.New("no"), 0
		from := resourcewatch.ListerWatcher[*metav1.PartialObjectMetadataList]{
			List: func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				return nil, refused
			},
			Watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, refused },
		}
		resourcewatch.Run(ctx, from, noHandler{}, longest, func(error) { tries++ })
		if least, most := int(lasts/(2*longest)), int(lasts/longest)+10; tries < least || tries > most {
			t.Errorf("got %[2]d tries in %[1]s, want %[3]d to %[4]d", lasts, tries, least, most)
		}
	})
}
