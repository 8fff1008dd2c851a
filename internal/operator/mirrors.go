package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/source"
)

// pull pulls an image from its mirrors, or from its own location. Its digest is the same everywhere.
func (r *releases) pull(ctx context.Context, image string) (*source.Release, error) {
	sets, err := mirrorSets(ctx, r.cluster)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, location := range locationsOf(image, sets) {
		pulled, err := source.Open(ctx, location, r.source)
		switch {
		case err == nil && location != image:
			pulled.Image = image
			return pulled, nil
		case err == nil || ctx.Err() != nil:
			return pulled, err
		case failed == nil:
			failed = err
		default:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	return nil, failed
}

// mirrorSets returns the sorted ImageDigestMirrorSets of a cluster; none if it does not serve the kind.
func mirrorSets(ctx context.Context, c *cluster.Cluster) ([]configv1.ImageDigestMirrorSet, error) {
	found, err := c.Objects.Resource(configv1.GroupVersion.WithResource("imagedigestmirrorsets")).List(ctx,
		metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		ctrl.LoggerFrom(ctx).Info("mirrors of images not read", "reason", err.Error())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list ImageDigestMirrorSets: %w", err)
	}
	sets := make([]configv1.ImageDigestMirrorSet, len(found.Items))
	for i, object := range found.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &sets[i]); err != nil {
			return nil, fmt.Errorf("ImageDigestMirrorSet %s: %w", object.GetName(), err)
		}
	}
	slices.SortFunc(sets, func(a, b configv1.ImageDigestMirrorSet) int { return cmp.Compare(a.Name, b.Name) })
	return sets, nil
}

// locationsOf returns the locations to pull an image from, in their order: its mirrors, and then its own location,
// unless a set forbids that one. If several sources match, the most exact one counts.
func locationsOf(image string, sets []configv1.ImageDigestMirrorSet) []string {
	var locations []string
	best, isForbidden := "", false
	for _, set := range sets {
		for _, mirrors := range set.Spec.ImageDigestMirrors {
			matched := matchedPart(image, mirrors.Source)
			if matched == "" || len(mirrors.Mirrors) == 0 || isLessExact(image, mirrors.Source, best) {
				continue
			}
			if mirrors.Source != best {
				best, isForbidden, locations = mirrors.Source, false, nil
			}
			isForbidden = isForbidden || mirrors.MirrorSourcePolicy == configv1.NeverContactSource
			for _, mirror := range mirrors.Mirrors {
				locations = append(locations, string(mirror)+strings.TrimPrefix(image, matched))
			}
		}
	}
	if !isForbidden {
		locations = append(locations, image)
	}
	return locations
}

// matchedPart returns the beginning of an image that a source matches: a host, a host with a path, or *.DOMAIN.
func matchedPart(image, source string) string {
	if domain, isWildcard := strings.CutPrefix(source, "*"); isWildcard {
		host, _, _ := strings.Cut(image, "/")
		name, _, _ := strings.Cut(host, ":")
		if strings.HasSuffix(name, domain) || strings.HasSuffix(host, domain) {
			return host
		}
		return ""
	}
	rest, isPrefix := strings.CutPrefix(image, source)
	if isPrefix && rest != "" && strings.ContainsRune("/@", rune(rest[0])) {
		return source
	}
	return ""
}

// isLessExact reports whether a source matches more images than another one. Both match the image.
func isLessExact(image, source, other string) bool {
	isWildcard := func(s string) int { return strings.Count(s, "*") }
	return other != "" && cmp.Or(
		cmp.Compare(len(matchedPart(image, source)), len(matchedPart(image, other))),
		-cmp.Compare(isWildcard(source), isWildcard(other)), cmp.Compare(len(source), len(other)),
	) < 0
}
