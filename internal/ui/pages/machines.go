package pages

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// machines returns the page on the machines of the cluster, and on what holds each.
func (s *Site) machines(ctx context.Context, _ url.Values) (*Content, error) {
	content := s.machinesContent(ctx, "Machines")
	if err := s.mayListMachines(ctx); err != nil {
		content.add("machines", "", notKnown(err))
		return content, nil
	}
	list, err := overview.List(ctx, s.Hub.Cluster, overview.Query{})
	switch {
	case errors.Is(err, overview.ErrNotServed):
		content.add("machines", "", h.P(g.Text("The cluster serves no machines.")))
		return content, nil
	case err != nil:
		return nil, err
	}
	if len(list.ControlPlanes) > 0 {
		content.add("control-planes", "Control planes", s.controlPlaneTable(list.ControlPlanes))
	}
	if len(list.Machines) > 0 {
		content.add("machines", "Machines", s.machineTable(list.Machines))
	} else {
		content.add("machines", "Machines", h.P(g.Text("The cluster has no machines.")))
	}
	if unknown := list.AllUnknown(); len(unknown) > 0 {
		content.add("unknown", "Not known", look.List(unknown))
	}
	return content, nil
}

// machinesContent returns an empty page about machines.
func (s *Site) machinesContent(ctx context.Context, title string) *Content {
	return &Content{
		Page: look.Page{Title: title, Menu: s.clusterMenu(ctx)}, Topic: live.Topic{Kind: live.OfMachines},
	}
}

// machineKinds are the kinds of machines of both APIs.
var machineKinds = []schema.GroupKind{overview.Kind, overview.ClusterAPIKind}

// mayListMachines returns an error unless the user may list the machines of both APIs, as far as they are served.
func (s *Site) mayListMachines(ctx context.Context) error {
	for _, kind := range machineKinds {
		resource, err := s.Hub.Cluster.FindKind(ctx, kind)
		if errors.Is(err, cluster.ErrNotServed) {
			continue
		}
		if err == nil {
			err = s.may(ctx, authorizationv1.ResourceAttributes{
				Verb: "list", Group: kind.Group, Resource: resource.GroupVersionResource.Resource,
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// controlPlaneTable returns the objects that replace the machines of control planes.
func (s *Site) controlPlaneTable(planes []*overview.ControlPlane) g.Node {
	columns := []string{"Namespace", "Control plane", "State", "Strategy", "Desired", "Updated", "Ready", "Waits for"}
	return tableOf("Control planes", columns, planes, func(plane *overview.ControlPlane) (string, []g.Node) {
		return objectID("control-plane", plane.ID()), []g.Node{
			look.Text(plane.Namespace), s.namedLink(plane.Kind+"/"+plane.Name, plane.ID()), look.Text(plane.State),
			look.Text(plane.Strategy), g.Text(strconv.Itoa(plane.Desired)), g.Text(strconv.Itoa(plane.Updated)),
			g.Text(strconv.Itoa(plane.Ready)), look.Text(cmp.Or(plane.Waits, "-")),
		}
	})
}

// machineTable returns machines with their phases, and what holds each.
func (s *Site) machineTable(machines []overview.Machine) g.Node {
	table := look.Table{
		Caption: "Machines",
		Columns: []string{"Namespace", "Machine", "Control plane", "Node", "Phase", "Since", "Held by", "What helps"},
	}
	for i := range machines {
		m, plane := &machines[i], g.Node(g.Text("-"))
		if m.ControlPlane != nil {
			plane = s.namedLink(m.ControlPlane.Set.Name, m.ControlPlane.Set.ID())
		}
		table.Rows = append(table.Rows, []g.Node{
			look.Text(m.Namespace), s.namedLink(m.Name, m.ID()), plane, look.Text(cmp.Or(m.Node, "-")),
			look.State(machineTone(m), m.Phase), look.Age(s.Hub.Cluster.Now(), m.Since),
			look.Text(cmp.Or(m.HeldBy(), "-")), remedyOf(m),
		})
		table.IDs = append(table.IDs, objectID("machine", m.ID()))
	}
	return table.Node()
}

// remedyOf returns what resolves the first hold of a machine that has a remedy.
func remedyOf(m *overview.Machine) g.Node {
	for _, hold := range m.Holds {
		if lines := hold.Remedy(); len(lines) > 0 {
			return g.Map(lines, func(line string) g.Node { return h.Div(advice(line)) })
		}
	}
	return g.Text("-")
}

// namedLink returns a link to the page on an object that need not be of a release.
func (s *Site) namedLink(text string, id kinds.ID) g.Node {
	return look.Link{Text: printable.Line(text), Address: s.objectAddress(nil, id)}.Node()
}

// machineTone returns the tone of the phase of a machine.
func machineTone(m *overview.Machine) look.Tone {
	switch {
	case m.IsDone():
		return look.Good
	case m.Phase == "Failed":
		return look.Bad
	case m.Phase == "Deleting":
		return look.Deleted
	default:
		return look.Waiting
	}
}
