// Package refusals finds the manifests of a release that an API server would refuse, by the server's own validation of
// Kubernetes' kinds (internal/objects/validation). The rules of lint report the refusals, and plans warn about them. A
// preview uses them for manifests that it can't send to a cluster.
//
// It asks no cluster, and only the command line may import it: the validation is large, and knows the version of
// Kubernetes that it was built with. A plan and a preview therefore get the refusals as data.
//
// Start with Find.
package refusals

import (
	"context"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runlevel/runlevel/internal/objects/fields"
	"github.com/runlevel/runlevel/internal/objects/validation"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Find returns the refusals of an API server that would create the objects of manifests; none for valid manifests and
// unknown kinds. The problems are those of reading the payload. Find returns early if the context ends.
func Find(ctx context.Context, manifests []*payload.Manifest,
	problems []payload.Problem) map[*payload.Manifest][]fields.Refusal {
	found := make([][]fields.Refusal, len(manifests))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, m := range manifests {
		if m.IsTombstone() {
			continue
		}
		group.Go(func() error {
			found[i] = validation.Check(ctx, m.Object())
			if isImageless(m, problems) {
				found[i] = slices.DeleteFunc(found[i], isMissingImage)
			}
			return ctx.Err()
		})
	}
	_ = group.Wait() // the caller checks the context
	refused := map[*payload.Manifest][]fields.Refusal{}
	for i, m := range manifests {
		if len(found[i]) > 0 {
			refused[m] = found[i]
		}
	}
	return refused
}

// isImageless reports whether a manifest is from a template with the image of the release itself, which is not known
// yet.
func isImageless(m *payload.Manifest, problems []payload.Problem) bool {
	return slices.ContainsFunc(problems, func(p payload.Problem) bool {
		return p.Cause == payload.Imageless && p.File == m.Path
	})
}

// isMissingImage reports whether a container lacks its image.
func isMissingImage(refusal fields.Refusal) bool {
	last := len(refusal.Path) - 1
	return last >= 0 && refusal.Path[last] == "image" &&
		strings.Contains(refusal.Message, field.ErrorTypeRequired.String())
}
