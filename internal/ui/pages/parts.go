package pages

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// clusterMenu returns the links to the pages on the whole cluster.
func (s *Site) clusterMenu(ctx context.Context) []look.Link {
	menu := []look.Link{{Text: "Releases", Address: s.address("/")}}
	if _, err := s.Hub.Cluster.FindKind(ctx, kinds.ClusterVersion); err == nil {
		menu = append(menu, look.Link{Text: "ClusterVersion", Address: s.address("/cluster")})
	}
	if s.hasMachines(ctx) {
		menu = append(menu, look.Link{Text: "Machines", Address: s.address("/machines")})
	}
	return append(menu, s.Links...)
}

// hasMachines reports whether the cluster serves machines of one of the APIs.
func (s *Site) hasMachines(ctx context.Context) bool {
	return slices.ContainsFunc(machineKinds, func(kind schema.GroupKind) bool {
		_, err := s.Hub.Cluster.FindKind(ctx, kind)
		return err == nil
	})
}

// releaseTrail returns the links to the pages above those of a release.
func (s *Site) releaseTrail() []look.Link {
	return []look.Link{{Text: "Releases", Address: s.address("/")}}
}

// releaseMenu returns the links to the pages on a release.
func (s *Site) releaseMenu(namespace, name string) []look.Link {
	var menu []look.Link
	for _, view := range []struct{ text, path string }{
		{"Overview", ""}, {"Objects", "objects"}, {"History", "history"},
	} {
		menu = append(menu, look.Link{Text: view.text, Address: s.releaseAddress(namespace, name, view.path)})
	}
	return menu
}

// maxName limits the characters of a title: the longest names of Kubernetes, and a kind.
const maxName = 600

// objectID returns the ID of an element on an object.
func objectID(prefix string, id kinds.ID) string {
	return look.ID(prefix, id.GroupKind().String(), id.Namespace, id.Name)
}

// command returns a command of runlevel on a release whose record is in a namespace.
func command(namespace string, words ...string) g.Node {
	line := "runlevel"
	for _, word := range words {
		line += " " + printable.ShellWord(word)
	}
	if namespace != session.DefaultNamespace {
		line += " --record-namespace " + namespace
	}
	return look.Command(line)
}

// whyCommand returns the command that explains an object.
func whyCommand(namespace string, id kinds.ID) g.Node {
	name := id.Name
	if id.Namespace != "" {
		name = id.Namespace + "/" + name
	}
	return command(namespace, "why", id.GroupKind().String()+"/"+name)
}

// tableOf returns a table with a row for each of the first things, and the number of the others.
func tableOf[T any](caption string, columns []string, all []T, row func(T) (id string, cells []g.Node)) g.Node {
	table := look.Table{Caption: caption, Columns: columns}
	for _, item := range all[:min(maxRows, len(all))] {
		id, cells := row(item)
		table.IDs, table.Rows = append(table.IDs, id), append(table.Rows, cells)
	}
	return g.Group{table.Node(), look.More(len(all)-len(table.Rows), "row")}
}

// maxDetails limits the messages on an object, and the details of each.
const maxDetails = 8

// messages returns messages with their details.
func messages(now time.Time, all []why.Message) g.Node {
	return messagesAs(all, func(text string) g.Node { return look.Prose(now, text) })
}

func messagesAs(all []why.Message, show func(string) g.Node) g.Node {
	if len(all) == 0 {
		return nil
	}
	return h.Ul(g.Map(all[:min(maxDetails, len(all))], func(message why.Message) g.Node {
		return h.Li(show(message.Text),
			look.Items(g.Map(message.Details[:min(maxDetails, len(message.Details))], show)...),
			look.More(len(message.Details)-maxDetails, "line"))
	}))
}

// advice returns a line that helps: a command, or a sentence.
func advice(line string) g.Node {
	if strings.HasPrefix(line, "kubectl ") || strings.HasPrefix(line, "runlevel ") {
		return look.Command(line)
	}
	return look.Text(line)
}

// releaseCommand matches the commands on a release in messages of package why, and finalizerCommand the one that it
// names for a finalizer.
var (
	releaseCommand   = regexp.MustCompile(`"?runlevel (apply|rollback|uninstall|diff|test) ([a-z0-9.-]*[a-z0-9])(@?)"?`)
	finalizerCommand = regexp.MustCompile(`^(if that controller does not exist any more): (kubectl patch .*)$`)
)

// messages returns messages with their details, in which the commands on the release can be copied.
func (v releaseView) messages(all []why.Message) g.Node { return messagesAs(all, v.prose) }

func (v releaseView) prose(text string) g.Node {
	if parts := finalizerCommand.FindStringSubmatch(text); parts != nil {
		return g.Group{g.Text(parts[1] + ": "), look.Command(parts[2])}
	}
	var nodes g.Group
	last := 0
	for _, place := range releaseCommand.FindAllStringSubmatchIndex(text, -1) {
		verb, name, suffix := text[place[2]:place[3]], text[place[4]:place[5]], text[place[6]:place[7]]
		// A text from outside may name a command, too.
		if name != v.Status.Release || verb == "uninstall" && v.Status.Uninstall == nil {
			continue
		}
		nodes = append(nodes, look.Prose(v.Status.Time, text[last:place[0]]), g.Text(" "),
			command(v.Namespace, verb, name+suffix))
		last = place[1]
	}
	return append(nodes, look.Prose(v.Status.Time, text[last:]))
}
