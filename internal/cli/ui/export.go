package ui

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/export"
	"github.com/runlevel/runlevel/internal/ui/live"
)

const exportFlag = "export"

// progressInterval is the interval at which an export reports its progress.
const progressInterval = 3 * time.Second

// writeFiles writes the pages as files.
func (f *flags) writeFiles(ctx context.Context, hub *live.Hub, page string, streams core.Streams) error {
	reported := time.Now()
	exported, err := export.Read(ctx, hub, page, func(done, found int) {
		if time.Since(reported) > progressInterval {
			reported = time.Now()
			fmt.Fprintf(streams.Err, "read %d of %d pages\n", done, found)
		}
	})
	if err != nil {
		return err
	}
	if err := core.WriteFolder(exportFlag, f.export, exported.Names, exported.Texts, true); err != nil {
		return err
	}
	report := Report{Folder: f.export, Pages: len(exported.Names), LeftOut: exported.LeftOut, Unread: exported.Unread}
	if err := f.format.Print(streams.Out, report, func(out io.Writer) error {
		lines := []string{fmt.Sprintf("wrote %s: open %s", printable.Count(report.Pages, "page"),
			printable.Line(filepath.Join(f.export, "index.html")))}
		if report.LeftOut > 0 {
			lines = append(lines, fmt.Sprintf("without the pages of %s that are ready",
				printable.Count(report.LeftOut, "object")))
		}
		for _, unread := range report.Unread {
			lines = append(lines, "could not be read: "+unread)
		}
		return core.PrintLines(out, lines)
	}); err != nil {
		return err
	}
	return core.FailIf(len(report.Unread) > 0)
}
