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
	room := maxShownBytes
	for i, file := range r.Files {
		text, err := os.ReadFile(filepath.Join(r.Folder, filepath.FromSlash(file.Path)))
		if err != nil {
			return page, err
		}
		if release, isStatus := strings.CutSuffix(strings.TrimPrefix(file.Path, "releases/"), "/status.txt"); isStatus {
			page.Sections = append(page.Sections, look.Section{ID: "release-" + release, Title: "Release " + release,
				Body: g.Group{look.Block(string(text), maxShownLines)}})
		}
		name := look.Code(file.Path)
		if room -= len(text); room > 0 {
			id := fmt.Sprintf("file-%d", i+1)
			name = h.A(h.Href("#"+id), name)
			contents = append(contents, look.Foldable(false, h.H3(look.Text(file.Path)), h.ID(id),
				contentsOf(file.Path, string(text))))
		}
		files.Rows = append(files.Rows, []g.Node{name, look.Text(file.Contents), g.Textf("%d", file.Bytes)})
	}
	page.Sections = append(page.Sections, look.Section{ID: "files", Title: "Files", Body: g.Group{
		h.P(g.Text("These files are in the folder "), look.Code(r.Folder), g.Text("; "+withoutSecrets)), files.Node(),
	}}, look.Section{ID: "contents", Title: "Contents", Body: contents})
	if len(r.Unreadable) > 0 {
		unread := look.Section{ID: "unread", Title: "Could not be read", Body: g.Group{look.List(r.Unreadable)}}
		page.Sections = append([]look.Section{unread}, page.Sections...)
	}
	return page, nil
}

// contentsOf returns the lines of a file, or the last ones of a log.
func contentsOf(path, text string) g.Node {
	if !strings.HasSuffix(path, ".log") {
		return look.Block(text, maxShownLines)
	}
	lines := strings.SplitAfter(text, "\n")
	more := max(0, len(lines)-maxShownLines)
	return g.Group{
		g.If(more > 0, h.P(g.Text(printable.Count(more, "earlier line")+" left out"))),
		look.Block(strings.Join(lines[more:], ""), maxShownLines),
	}
}
