package keep_test

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/session/keep"
	"github.com/runlevel/runlevel/pkg/apply"
)

// Changes of an object are not repaired before the apply is done with the object. They are repaired as soon as the
// apply passes it to Take.
func TestObjectIsKeptAfterItsHandOver(t *testing.T) {
	t.Parallel()
	s := &site{t: t, name: test.Namespace(t), keeping: &wire{}, admin: connect(t, test.Sandbox(t).Config, nil)}
	s.release = load(t, s.name, `
-- 0000_10_shop_10.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: NS}, data: {colour: red}}
-- 0000_10_shop_20.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: second, namespace: NS}, data: {colour: red}}
-- 0000_10_shop_30.yaml --
{apiVersion: v1, kind: ConfigMap, metadata: {name: third, namespace: NS}, data: {colour: red}}
`)
	report, options := s.apply(apply.Options{})
	options.Fingerprints = report.Fingerprints
	ctx, cancel := context.WithCancel(t.Context())
	keeper := keep.Start(ctx, s.admin, s.release, keep.Options{Apply: options.Options, Every: -1})
	t.Cleanup(func() {
		cancel()
		if err := keeper.Wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	isRed := func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		colour, _, _ := unstructured.NestedString(o.Object, "data", "colour")
		return colour == "red"
	}
	repairs := func(name, change string) {
		t.Helper()
		s.patch("ConfigMap", name, change)
		awaitMap(t, s.name+"/"+name, isRed)
	}

	keeper.Take(report.Changes[0])
	repairs("first", `{"data":{"colour":"blue"}}`)
	s.patch("ConfigMap", "second", `{"data":{"colour":"blue"}}`)
	s.delete("ConfigMap", "third")
	repairs("first", `{"data":{"colour":"green"}}`) // the same watch shows this change after that
	if isRed(s.get("ConfigMap", "second")) || s.get("ConfigMap", "third") != nil {
		t.Error("an object is repaired that was not handed over")
	}
	keeper.Take(report.Changes[1])
	keeper.Take(report.Changes[2])
	awaitMap(t, s.name+"/second", isRed)
	awaitMap(t, s.name+"/third", isRed)
}
