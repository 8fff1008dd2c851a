package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// Limits of the page of an inspection.
const (
	maxShownLines = 1_000     // of a file: the first ones, or the last ones of a log
	maxShownBytes = 8_000_000 // of all files
)

// inspectionPage returns an inspection as a page: the status of each release, and the files with their contents.
func inspectionPage(r *state.InspectReport) (look.Page, error) {
	page := look.Page{Title: "Inspection of " + r.Time.Format(time.RFC3339)}
	files := look.Table{Caption: "Files", Columns: []string{"File", "Contents", "Bytes"}}
	var contents g.Group
	room, leftOut := maxShownBytes, 0
	for i, file := range r.Files {
		text, err := os.ReadFile(filepath.Join(r.Folder, filepath.FromSlash(file.Path)))
		if err != nil {
			return page, err
		}
		if release, isStatus := strings.CutSuffix(strings.TrimPrefix(file.Path, "releases/"), "/status.txt"); isStatus {
			page.Sections = append(page.Sections, look.Section{ID: "release-" + release, Title: "Release " + release,
				Body: g.Group{look.Block(string(text), maxShownLines)}})
		}
		name, about := look.Code(file.Path), look.Text(file.Contents)
		shown := contentsOf(file.Path, string(text))
		if size := sizeOf(shown); size <= room {
			room -= size
			id := fmt.Sprintf("file-%d", i+1)
			name = h.A(h.Href("#"+id), name)
			contents = append(contents, look.Fold(false, h.H3(look.Text(file.Path)),
				h.Div(h.ID(id), shown))) // inside, so that a link unfolds it
		} else {
			leftOut++
			about = g.Group{about, g.Text(" (not on this page: too big)")}
		}
		files.Rows = append(files.Rows, []g.Node{name, about, g.Textf("%d", file.Bytes)})
	}
	list := g.Group{h.P(g.Text("These files are in the folder "), look.Code(r.Folder), g.Text("; "+withoutSecrets))}
	if leftOut > 0 {
		list = append(list, look.Notice(look.Waiting, h.P(g.Textf("This page has no room for the contents of %s.",
			printable.Count(leftOut, "file")))))
	}
	page.Sections = append(page.Sections,
		look.Section{ID: "files", Title: "Files", Body: append(list, files.Node())})
	if len(contents) > 0 {
		page.Sections = append(page.Sections, look.Section{ID: "contents", Title: "Contents", Body: contents})
	}
	if len(r.Unreadable) > 0 {
		unread := look.Section{ID: "unread", Title: "Could not be read", Body: g.Group{look.List(r.Unreadable)}}
		page.Sections = append([]look.Section{unread}, page.Sections...)
	}
	return page, nil
}

// sizeOf returns the bytes of an element on a page.
func sizeOf(node g.Node) int {
	var text strings.Builder
	_ = node.Render(&text) // a strings.Builder does not fail
	return text.Len()
}

// contentsOf returns the lines of a file, or the last ones of a log.
func contentsOf(path, text string) g.Node {
	if !strings.HasSuffix(path, ".log") {
		return look.Block(text, maxShownLines)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	more := max(0, len(lines)-maxShownLines)
	return g.Group{
		g.If(more > 0, h.P(g.Text(printable.Count(more, "earlier line")+" left out"))),
		look.Block(strings.Join(lines[more:], ""), maxShownLines),
	}
}
