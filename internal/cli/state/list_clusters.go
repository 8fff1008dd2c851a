package state

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// runMany lists the releases of several clusters.
func (f *listFlags) runMany(ctx context.Context, streams core.Streams) error {
	if f.timeout <= 0 {
		return core.Misusef("--timeout: %s is invalid: it must be positive", f.timeout)
	}
	named, err := f.many.Clusters(f.cluster)
	if err != nil {
		return err
	}
	var sources []state.ClusterSource
	for _, cluster := range named {
		sources = append(sources, state.ClusterSource{
			Name: cluster.Name,
			Connect: func(ctx context.Context) (*state.Reader, error) {
				reader, err := connect(ctx, &cluster.Flags)
				if f.all {
					reader.Namespace = metav1.NamespaceAll
				}
				return reader, err
			},
		})
	}
	clusters := state.ListClusters(ctx, sources, f.timeout)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	unread := 0
	var reasons []string
	for _, cluster := range clusters {
		if cluster.Error != "" {
			unread++
			reasons = append(reasons, printable.Line(cluster.Cluster+": "+cluster.Error))
		}
	}
	if err := f.format.Print(streams.Out, clusters, func(out io.Writer) error {
		lines := core.Align(f.clusterRows(clusters))
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " ")
		}
		return core.PrintLines(out, append(lines, reasons...))
	}); err != nil {
		return err
	}
	if unread > 0 {
		return fmt.Errorf("%d of %s could not be read", unread, printable.Count(len(clusters), "cluster"))
	}
	return nil
}

// The columns of cells that may be long. With them, most tables fit a terminal of 120 columns.
const (
	clusterColumns = 24
	releaseColumns = 16
	versionColumns = 16
	blockColumns   = 20
	updateColumns  = 20
)

// clusterRows returns the table of clusters and their releases.
func (f *listFlags) clusterRows(clusters []state.ListedCluster) []string {
	header := "CLUSTER\tNAME\tVERSION\tSTATE\tAGE\tBLOCKED BY\tPROBLEMS\tUPDATES"
	if f.format == wide {
		header += "\tNAMESPACE\tKEPT BY\tAFTER\tFIRST PROBLEM"
	}
	rows := []string{header}
	for _, cluster := range clusters {
		name := f.cell(cluster.Cluster, clusterColumns)
		switch {
		case len(cluster.Releases) == 0 && cluster.Error != "":
			rows = append(rows, name+"\t-\t-\tNotRead\t\t\t\t")
		case len(cluster.Releases) == 0:
			rows = append(rows, name+"\t-\t-\tNoRelease\t\t\t\t")
		}
		for _, release := range cluster.Releases {
			word, age := stateAndAge(release, cluster.Time)
			row := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s", name, f.cell(release.Release, releaseColumns),
				f.cell(release.Version, versionColumns), word, age, f.cell(f.several(blocksOf(release)), blockColumns),
				len(release.Problems), f.cell(f.several(updatesOf(release)), updateColumns))
			if f.format == wide {
				row += fmt.Sprintf("\t%s\t%s\t%s\t%s", release.Namespace, release.KeptBy, f.cell(release.Previous, 0),
					cmp.Or(append(release.Problems, "")[0], "-"))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// cell returns a text in one line, which is cut in the middle if it has too many columns: the ends of names differ.
func (f *listFlags) cell(text string, columns int) string {
	runes := []rune(printable.Line(cmp.Or(text, "-")))
	if f.format == wide || len(runes) <= columns {
		return string(runes)
	}
	return string(runes[:columns/2-1]) + "…" + string(runes[len(runes)-columns/2:])
}

// several returns the first text, and the number of the others; all if the table may be wide.
func (f *listFlags) several(texts []string) string {
	if f.format == wide || len(texts) < 2 {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s +%d", texts[0], len(texts)-1)
}

// stateAndAge returns the state of a release with its progress, and its age.
func stateAndAge(release state.ListedRelease, now time.Time) (word, age string) {
	word = string(release.State)
	if release.State == state.ReleaseApplying && release.Percent != nil {
		word += " " + strconv.Itoa(*release.Percent) + "%"
	}
	if release.Since != nil {
		age = printable.Age(now, *release.Since)
	}
	return word, age
}

// blocksOf returns the reasons of the gates that block an update, those of the requested version first.
func blocksOf(release state.ListedRelease) []string {
	var requested, others []string
	for _, block := range release.Blocks {
		if block.Requested {
			requested = append(requested, block.Reason)
		} else {
			others = append(others, block.Reason)
		}
	}
	return append(requested, others...)
}

// updatesOf returns the versions of updates, the recommended ones first.
func updatesOf(release state.ListedRelease) []string {
	var texts []string
	for _, update := range release.Updates {
		text := update.Version
		if update.Recommended != string(metav1.ConditionTrue) {
			text += " (" + update.Reason + ")"
		}
		texts = append(texts, text)
	}
	return texts
}
