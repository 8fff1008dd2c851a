package pages_test

import (
	"cmp"
	"context"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/record/files"
	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/pages"
	"github.com/runlevel/runlevel/pkg/apply"
	"github.com/runlevel/runlevel/pkg/payload"
)

var test = sandboxtest.New(sandbox.Options{})

func TestMain(m *testing.M) { os.Exit(test.Run(m)) }

// A release is a release that a test applies in several versions. It has its own namespace; NS stands for this
// namespace in its files.
type release struct {
	*testing.T
	namespace string
	versions  []*payload.Payload // in the order of their revisions
}

func newRelease(t *testing.T) *release {
	t.Helper()
	return &release{t, test.Namespace(t), nil}
}

// apply applies a version, and keeps it as the next revision. It returns the error of the apply.
func (r *release) apply(version, manifests string, change ...func(*session.Options)) error {
	r.Helper()
	loaded := sandboxtest.LoadRelease(r, r.namespace, manifests, payload.Options{Name: r.namespace})
	loaded.Version = version
	loaded.Hash += version
	packed, err := files.Pack(fstest.MapFS{"a": {Data: []byte(manifests + version)}}, []string{"a"}, nil)
	if err != nil {
		r.Fatal(err)
	}
	r.versions = append(r.versions, loaded)
	options := session.Options{Namespace: r.namespace, Apply: apply.Options{Timeout: time.Minute},
		Files: session.FileOptions{Packed: packed}}
	for _, fn := range change {
		fn(&options)
	}
	return session.Run(r.Context(), test.Connect(r), loaded, options).Err
}

// must applies a version, without an error.
func (r *release) must(version, manifests string) {
	r.Helper()
	if err := r.apply(version, manifests); err != nil {
		r.Fatal(err)
	}
}

// noWait ends an apply when everything is applied, ready or not.
func noWait(options *session.Options) { options.Apply.NoWait = true }

// site returns the pages as the administrator reads them, or as the user of a configuration.
func (r *release) site(as ...*rest.Config) *pages.Site {
	r.Helper()
	config := append(as, test.Sandbox(r).Config)[0]
	return &pages.Site{Hub: live.New(live.Config{
		Cluster:    sandboxtest.Connect(r, sandboxtest.ReadOnly(r, config)),
		Namespace:  r.namespace,
		Explainers: overview.Explainers(),
		Open: func(_ context.Context, _, _, revision string) (*payload.Payload, error) {
			number, err := strconv.Atoi(cmp.Or(revision, strconv.Itoa(len(r.versions))))
			if err != nil || number < 1 || number > len(r.versions) {
				return nil, os.ErrNotExist
			}
			return r.versions[number-1], nil
		},
	})}
}

// page returns the HTML of a page of the release, with its query.
func (r *release) page(site *pages.Site, view string) string {
	r.Helper()
	return render(r.T, site, "/releases/"+r.namespace+"/"+r.namespace+"/"+view)
}

func render(t *testing.T, site *pages.Site, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	content, err := site.Page(t.Context(), parsed)
	if err != nil {
		t.Fatalf("%s: %v", address, err)
	}
	var out strings.Builder
	if rendered, err := content.Render(); err != nil {
		t.Fatal(err)
	} else if err := rendered.Serve(&out, "/events", time.Now()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// object returns the HTML of the page on an object in the namespace of the release.
func (r *release) object(site *pages.Site, kind, name string) string {
	r.Helper()
	return r.page(site, "object?"+url.Values{
		"kind": {kind}, "namespace": {r.namespace}, "name": {name},
	}.Encode())
}

// contains fails the test unless a page has all texts.
func contains(t *testing.T, page string, wanted ...string) {
	t.Helper()
	for _, text := range wanted {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q:\n%s", text, page)
		}
	}
}

// lacks fails the test if a page has one of the texts.
func lacks(t *testing.T, page string, unwanted ...string) {
	t.Helper()
	for _, text := range unwanted {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q:\n%s", text, page)
		}
	}
}
