package source_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runlevel/runlevel/internal/source"
)

func TestLocations(t *testing.T) {
	const image = "quay.example/team/shop@sha256:a"
	mirror := func(from string, places ...string) source.Mirror {
		return source.Mirror{Source: from, Mirrors: places}
	}
	never := mirror("quay.example/team", "third.test")
	never.IsOnly = true
	for name, test := range map[string]struct {
		mirrors source.Mirrors
		want    []string
	}{
		"none": {nil, []string{image}},
		"another repository": {source.Mirrors{mirror("quay.example/tea", "first.test"),
			mirror("quay.example/team/shop/part", "first.test")}, []string{image}},
		"of the registry": {source.Mirrors{mirror("quay.example", "first.test:5000/quay")},
			[]string{"first.test:5000/quay/team/shop@sha256:a", image}},
		"of the repository": {source.Mirrors{mirror("quay.example/team/shop", "first.test/x")},
			[]string{"first.test/x@sha256:a", image}},
		"of the domain": {source.Mirrors{mirror("*.example", "first.test/x")},
			[]string{"first.test/x/team/shop@sha256:a", image}},
		"of another domain": {source.Mirrors{mirror("*.ample", "first.test/x")}, []string{image}},
		"several in order": {source.Mirrors{mirror("quay.example", "b.test", "a.test")},
			[]string{"b.test/team/shop@sha256:a", "a.test/team/shop@sha256:a", image}},
		"the most exact wins": {source.Mirrors{mirror("*.example", "c.test"),
			mirror("quay.example/team", "a.test"), mirror("quay.example", "b.test")},
			[]string{"a.test/shop@sha256:a", image}},
		"the same source": {source.Mirrors{mirror("quay.example/team", "a.test"),
			mirror("quay.example/team", "b.test")}, []string{"a.test/shop@sha256:a", "b.test/shop@sha256:a", image}},
		"the source never": {source.Mirrors{mirror("quay.example/team", "a.test"), never},
			[]string{"a.test/shop@sha256:a", "third.test/shop@sha256:a"}},
		"never of another": {source.Mirrors{never, mirror("quay.example/team/shop", "a.test")},
			[]string{"a.test@sha256:a", image}},
		"without mirrors": {source.Mirrors{mirror("quay.example/team/shop")}, []string{image}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.mirrors.Locations(image)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	tag := strings.ReplaceAll(image, "@sha256", "")
	if got := (source.Mirrors{mirror("quay.example", "first.test")}).Locations(tag); len(got) != 1 || got[0] != tag {
		t.Errorf("an image by tag is read from %q", got)
	}
}

func TestMirrorsOfAFlag(t *testing.T) {
	for text, isValid := range map[string]bool{
		"registry.example=mirror.example:5000":                         true,
		"registry.example/shop=mirror.example/x,other.test/a=[::1]:80": true,
		"localhost/shop=localhost:5000/shop":                           true,
		"registry.example":                                             false, "=mirror.example": false,
		"registry.example=": false, "": true, "registry.example=./mirror": false,
		"registry.example=https://mirror.example": false, "registry.example/a:1=mirror.example/a": false,
		"shop=mirror.example": false, "registry.example/A=mirror.example": false,
		"registry.example/=mirror.example": false,
		"registry.example=mirror.example,": false, "registry.example=mirror.example/a=b": false,
	} {
		var mirrors source.Mirrors
		if err := mirrors.Set(text); (err == nil) != isValid {
			t.Errorf("%q: %v", text, err)
		} else if isValid && mirrors.String() != text {
			t.Errorf("%q is written as %q", text, &mirrors)
		}
	}
}

// TestAMirrorIsReadFirst opens a release by digest whose own registry does not exist, and one that no place has: the
// error names each place.
func TestAMirrorIsReadFirst(t *testing.T) {
	served := newRegistry(t, nil)
	image := smallImage(t)
	served.has(t, "copies/shop:1", image)
	digest := digestOf(t, image)
	mirrors := source.Mirrors{{Source: "registry.invalid/team", Mirrors: []string{served.host + "/copies"}}}
	release := open(t, "registry.invalid/team/shop@"+digest, source.Options{Mirrors: mirrors})
	checkFiles(t, release.FS, small)
	if release.Image != "registry.invalid/team/shop@"+digest {
		t.Errorf("the image is %s", release.Image)
	}
	missing := "registry.invalid/team/other@" + digest
	checkFailure(t, missing, source.Options{Mirrors: mirrors}, served.host+"/copies/other@"+digest+
		": the registry has no such image; REF: there is no host registry.invalid: check the registry's name and "+
		"your network")
	checkFailure(t, "registry.invalid/team/shop:1", source.Options{Mirrors: mirrors},
		"REF: there is no host registry.invalid: check the registry's name and your network")
}
