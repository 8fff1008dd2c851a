package lint

import (
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/pkg/crd"
	"github.com/runlevel/runlevel/pkg/payload"
)

// TestMemory puts words into what is remembered, so that it is seen who says them.
func TestMemory(t *testing.T) {
	const bad = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: carts.shop.example}\nspec: {group: shop.example}\n"
	const other = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	memory := &Memory{}
	says := func(text string) string {
		t.Helper()
		found := ""
		for _, f := range lintWith(t, memory, text).Findings {
			if f.Rule == "definition" {
				found = f.Message
			}
		}
		return found
	}
	looked := says(bad)
	if looked == "" || len(memory.asks) != 1 {
		t.Fatalf("the definition is looked at: %q, and %d answers are kept", looked, len(memory.asks))
	}
	for about := range memory.asks {
		memory.asks[about] = []crd.Problem{{Message: "remembered"}}
	}
	for _, run := range []struct{ what, text, want string }{
		{"the next run", bad, "remembered"},
		{"the one after it", bad, "remembered"},
		{"one with a comment more", "# new\n" + bad, looked},
		{"one without the definition", other, ""},
		{"one that has it again", bad, looked},
	} {
		if got := says(run.text); got != run.want {
			t.Errorf("%s says %q, want %q", run.what, got, run.want)
		}
	}
}

// lintWith lints a payload of one file.
func lintWith(t *testing.T, memory *Memory, text string) *Result {
	t.Helper()
	files := fstest.MapFS{"0000_50_shop_01.yaml": {Data: []byte(text)}}
	read, problems, err := payload.Parse(t.Context(), files, payload.Options{KeepText: true})
	if err != nil {
		t.Fatal(err)
	}
	result, err := Run(t.Context(), Input{Payload: read, Problems: problems, Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	return result
}
