package pages_test

import (
	"strings"
	"testing"

	"github.com/runlevel/runlevel/internal/session"
)

func TestTheHistoryHasAllVersions(t *testing.T) {
	r := newRelease(t)
	r.must("1.0.0", shop)
	r.must("1.0.1", strings.ReplaceAll(shop, "blue", "red"))
	err := r.apply("1.0.2", strings.ReplaceAll(shop, "kind: Secret", "kind: ConfigMap"),
		func(options *session.Options) {
			options.Files = session.FileOptions{NotKept: "the disk is full <b>"}
		})
	if err == nil {
		t.Fatal("the apply of an invalid ConfigMap succeeded")
	}
	page := r.page(r.site(), "history")
	contains(t, page, "revision-1", "revision-3", "1.0.0", "1.0.1", "1.0.2", "no files: the disk is full &lt;b&gt;",
		"its apply ended without completing it", "stringData", "from=1&amp;to=2", `<option value="1" selected>`)
	lacks(t, page, "from=2")
}
