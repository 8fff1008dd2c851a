package operator

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
)

func TestLocationsOf(t *testing.T) {
	const image = "quay.example/team/shop@sha256:a"
	mirror := func(source string, mirrors ...configv1.ImageMirror) configv1.ImageDigestMirrors {
		return configv1.ImageDigestMirrors{Source: source, Mirrors: mirrors}
	}
	never := mirror("quay.example/team", "third.test")
	never.MirrorSourcePolicy = configv1.NeverContactSource
	for name, test := range map[string]struct {
		mirrors []configv1.ImageDigestMirrors
		want    []string
	}{
		"none": {nil, []string{image}},
		"another repository": {[]configv1.ImageDigestMirrors{mirror("quay.example/tea", "first.test"),
			mirror("quay.example/team/shop/part", "first.test")}, []string{image}},
		"of the registry": {[]configv1.ImageDigestMirrors{mirror("quay.example", "first.test:5000/quay")},
			[]string{"first.test:5000/quay/team/shop@sha256:a", image}},
		"of the repository": {[]configv1.ImageDigestMirrors{mirror("quay.example/team/shop", "first.test/x")},
			[]string{"first.test/x@sha256:a", image}},
		"of the domain": {[]configv1.ImageDigestMirrors{mirror("*.example", "first.test/x")},
			[]string{"first.test/x/team/shop@sha256:a", image}},
		"of another domain": {[]configv1.ImageDigestMirrors{mirror("*.ample", "first.test/x")}, []string{image}},
		"several in order": {[]configv1.ImageDigestMirrors{mirror("quay.example", "b.test", "a.test")},
			[]string{"b.test/team/shop@sha256:a", "a.test/team/shop@sha256:a", image}},
		"the most exact wins": {[]configv1.ImageDigestMirrors{mirror("*.example", "c.test"),
			mirror("quay.example/team", "a.test"), mirror("quay.example", "b.test")},
			[]string{"a.test/shop@sha256:a", image}},
		"the same source": {[]configv1.ImageDigestMirrors{mirror("quay.example/team", "a.test"),
			mirror("quay.example/team", "b.test")}, []string{"a.test/shop@sha256:a", "b.test/shop@sha256:a", image}},
		"the source never": {[]configv1.ImageDigestMirrors{mirror("quay.example/team", "a.test"), never},
			[]string{"a.test/shop@sha256:a", "third.test/shop@sha256:a"}},
		"never of another": {[]configv1.ImageDigestMirrors{never, mirror("quay.example/team/shop", "a.test")},
			[]string{"a.test@sha256:a", image}},
		"without mirrors": {[]configv1.ImageDigestMirrors{mirror("quay.example/team/shop")}, []string{image}},
	} {
		t.Run(name, func(t *testing.T) {
			got := locationsOf(image,
				[]configv1.ImageDigestMirrorSet{
					{Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: test.mirrors}},
				})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
