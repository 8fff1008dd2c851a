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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/source"
)

// pull pulls an image from its mirrors, or from its own location.
func (r *releases) pull(ctx context.Context, image string) (*source.Release, error) {
	options := r.source
	var err error
	if options.Mirrors, err = r.mirrors(ctx); err != nil {
		return nil, err
	}
	return source.Open(ctx, image, options)
}

// mirrors returns the mirrors of the operator's flags, and then those of the cluster.
func (r *releases) mirrors(ctx context.Context) (source.Mirrors, error) {
	mirrors, err := readMirrors(ctx, r.cluster)
	return slices.Concat(r.source.Mirrors, mirrors), err
}

// signedImages returns where signatures lie beside an image: in its mirrors, or at its own location.
func (r *releases) signedImages(ctx context.Context, image string) ([]signature.Images, error) {
	mirrors, err := r.mirrors(ctx)
	if err != nil {
		return nil, err
	}
	var all []signature.Images
	for _, location := range mirrors.Locations(image) {
		repository, _, _ := strings.Cut(location, "@")
		all = append(all, signature.Images{Name: repository, Open: func(ctx context.Context) (oci.Store, error) {
			parsed, err := oci.ParseRegistry(location, r.source.Insecure)
			if err != nil {
				return nil, err
			}
			return oci.Open(ctx, parsed, oci.Options{Insecure: r.source.Insecure})
		}})
	}
	return all, nil
}

// readMirrors returns the mirrors of the ImageDigestMirrorSets of a cluster, sorted by their names; none if it does not
// serve the kind.
func readMirrors(ctx context.Context, c *cluster.Cluster) (source.Mirrors, error) {
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
	slices.SortFunc(found.Items, func(a, b unstructured.Unstructured) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	var mirrors source.Mirrors
	for _, object := range found.Items {
		var set configv1.ImageDigestMirrorSet
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &set); err != nil {
			return nil, fmt.Errorf("ImageDigestMirrorSet %s: %w", object.GetName(), err)
		}
		for _, item := range set.Spec.ImageDigestMirrors {
			mirror := source.Mirror{Source: item.Source, IsOnly: item.MirrorSourcePolicy == configv1.NeverContactSource}
			for _, place := range item.Mirrors {
				mirror.Mirrors = append(mirror.Mirrors, string(place))
			}
			mirrors = append(mirrors, mirror)
		}
	}
	return mirrors, nil
}
