// Package export makes files of the pages on the releases of a cluster, which need no server and no script.
//
// It follows the links of the pages. It does not write the files.
//
// Start with Read.
package export

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/internal/ui/pages"
)

// maxReady limits the pages of objects of a release that are ready. All others have a page.
const maxReady = 200

// An Export has pages as files.
type Export struct {
	Names   []string // of the files, with slashes
	Texts   [][]byte // their contents
	LeftOut int      // objects without a page
	Unread  []string // pages that could not be made

	site    pages.Site
	first   string
	current string              // file of the current page
	files   map[string]string   // by address
	queue   []string            // addresses
	objects map[string]*objects // by release
	without map[string]bool     // addresses of objects without a page
	note    string
}

// objects are the objects of a release with a page.
type objects struct {
	urgent map[string]bool // those that are not ready, by group, kind, namespace and name
	ready  int             // number of the others
}

// Read makes the files of a page, of the pages that it links to, and so on. The first page is index.html. If it is that
// of a release, there are only pages on that release. Progress is called after each page.
func Read(ctx context.Context, hub *live.Hub, first string, progress func(done, found int)) (*Export, error) {
	e := &Export{first: first, files: map[string]string{}, objects: map[string]*objects{}, without: map[string]bool{}}
	e.site = pages.Site{Hub: hub, Find: e.find}
	e.note = fmt.Sprintf("Written at %s from the cluster at %s.",
		hub.Cluster.Now().UTC().Format(time.RFC3339), cluster.Host(hub.Cluster))
	e.find(first)
	for len(e.Names) < len(e.queue) {
		address := e.queue[len(e.Names)]
		text, err := e.page(ctx, address)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && address == first:
			return nil, err
		case err != nil:
			e.Unread = append(e.Unread, printable.Line(address+": "+err.Error()))
		}
		e.Names, e.Texts = append(e.Names, e.files[address]), append(e.Texts, text)
		progress(len(e.Names), len(e.queue))
	}
	e.LeftOut = len(e.without)
	return e, nil
}

// page returns a page as a file. With an error, the file has the error.
func (e *Export) page(ctx context.Context, address string) ([]byte, error) {
	e.current = e.files[address]
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	e.readObjects(ctx, parsed)
	before := len(e.without)
	content, err := e.site.Page(ctx, parsed)
	if err != nil {
		content = &pages.Content{Page: look.Page{Title: "This page could not be read",
			Sections: []look.Section{{ID: "error", Body: g.Group{h.P(look.Text(err.Error()))}}}}}
	} else {
		// A topic with a viewer is read once.
		e.site.Hub.Changes(ctx, content.Topic)
	}
	content.Note = e.note
	if more := len(e.without) - before; more > 0 {
		content.Note += fmt.Sprintf(" Pages of %s that are ready are left out.", printable.Count(more, "object"))
	}
	var text bytes.Buffer
	failed := content.WriteFile(&text)
	return text.Bytes(), cmp.Or(err, failed)
}

// readObjects finds out which objects of the release of a page are not ready.
func (e *Export) readObjects(ctx context.Context, address *url.URL) {
	key, namespace, name := releaseOf(address)
	if name == "" || e.objects[key] != nil {
		return
	}
	known := &objects{urgent: map[string]bool{}}
	e.objects[key] = known
	release, err := e.site.Hub.Release(ctx, namespace, name)
	if err != nil {
		return // its page has the error
	}
	for _, answer := range release.Status.Objects {
		known.urgent[idKey(answer.Object)] = true
	}
	list, err := release.Objects()
	if err != nil {
		return
	}
	for _, object := range list.Objects {
		if object.State != why.Ready {
			known.urgent[idKey(object.Object)] = true
		}
	}
}

func idKey(id kinds.ID) string { return objectKey(id.GroupKind().String(), id.Namespace, id.Name) }

func objectKey(kind, namespace, name string) string {
	return strings.Join([]string{kind, namespace, name}, "/")
}

// releaseOf returns the release of an address; empty names if it has none.
func releaseOf(address *url.URL) (key, namespace, name string) {
	parts := strings.Split(address.Path, "/")
	if len(parts) < 4 || parts[1] != "releases" {
		return "", "", ""
	}
	return strings.Join(parts[:4], "/"), parts[2], parts[3]
}

// find returns the path from the current page to the file of an address; "" if the page is left out. It adds pages that
// it is asked for.
func (e *Export) find(address string) string {
	file, isKnown := e.files[address]
	if !isKnown {
		parsed, err := url.Parse(address)
		if err != nil || !e.includes(parsed) {
			return ""
		}
		file = e.fileName(parsed)
		e.files[address] = file
		e.queue = append(e.queue, address)
	}
	return strings.Repeat("../", strings.Count(e.current, "/")) + file
}

// includes reports whether the page of an address is written. It counts the objects.
func (e *Export) includes(address *url.URL) bool {
	key, _, _ := releaseOf(address)
	if strings.HasPrefix(e.first, "/releases/") && key != e.first {
		return false
	}
	query := address.Query()
	isObject := strings.HasSuffix(address.Path, "/object")
	switch isPage := len(query) == 0 || len(query) == 1 && query.Has("page"); {
	case isPage, strings.HasSuffix(address.Path, "/plan"):
		return true
	case !isObject: // a filter
		return false
	}
	known := e.objects[key]
	if known == nil {
		known = &objects{}
		e.objects[key] = known
	}
	switch {
	case known.urgent[objectKey(query.Get("kind"), query.Get("namespace"), query.Get("name"))]:
		return true
	case known.ready < maxReady:
		known.ready++
		return true
	default:
		e.without[address.String()] = true
		return false
	}
}

// fileName returns the name of the file of a page. It fits each file system.
func (e *Export) fileName(address *url.URL) string {
	if address.String() == e.first {
		return "index.html"
	}
	parts := strings.Split(strings.Trim(address.Path, "/"), "/")
	for i, part := range parts {
		parts[i] = safe(part)
	}
	name := cmp.Or(strings.Join(parts, "/"), "all-releases")
	if len(parts) == 3 { // the page of a release is beside those below it
		name += "/release"
	}
	if address.RawQuery == "" {
		return name + ".html"
	}
	query := address.Query()
	var values []string
	for _, key := range []string{"kind", "namespace", "name", "from", "to", "page"} {
		values = append(values, query[key]...)
	}
	values = slices.DeleteFunc(values, func(value string) bool { return value == "" })
	const hashed = 4 // bytes of the hash: two names may differ only in replaced characters
	sum := sha256.Sum256([]byte(address.RawQuery))
	return fmt.Sprintf("%s/%s-%x.html", name, safe(strings.Join(values, "-")), sum[:hashed])
}

const maxFileName = 80

// safe returns a text with only those characters that each file system has.
func safe(text string) string {
	text = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, strings.ToLower(text))
	return text[:min(len(text), maxFileName)]
}
