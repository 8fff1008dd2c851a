package pages

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An objectView has the facts that the sections of the page on an object share.
type objectView struct {
	*Site
	ctx      context.Context
	release  *live.Release     // nil for an object of no release
	manifest *payload.Manifest // nil if the release does not have it, or its files can't be read
	id       kinds.ID
	resource schema.GroupResource
	live     *unstructured.Unstructured // nil if it does not exist, or can't be read
	unread   error                      // why it can't be read
	pods     func() ([]corev1.Pod, error)
}

// object returns the page on an object: why it is in its state, its differences from the release, events, the log of a
// failing container, references and manifests.
func (s *Site) object(ctx context.Context, namespace, name string, query url.Values) (_ *Content, err error) {
	kind := schema.ParseGroupKind(query.Get("kind"))
	v := &objectView{Site: s, ctx: ctx, id: kinds.NewID(kind, query.Get("namespace"), query.Get("name"))}
	v.pods = sync.OnceValues(v.readPods)
	if kind.Kind == "" || v.id.Name == "" {
		return nil, ErrNotFound
	}
	title := printable.Shorten(v.id.String(), maxName)
	content := s.contentOf(namespace, name, title)
	if name == "" {
		content = s.machinesContent(ctx, title)
	} else if v.release, err = s.Hub.Release(ctx, namespace, name); err != nil {
		return nil, err
	}
	if err := v.read(); err != nil {
		content.add("why", "", notKnown(err))
		return content, nil
	}
	v.findManifest()
	parts := []struct {
		id, title string
		body      func() g.Group
	}{
		{"why", "Why", v.why},
		{"diff", "Differences from the release", v.diff},
		{"log", "Log of a failing container", v.log},
		{"events", "Events", v.events},
		{"references", "References", v.references},
		{"live", "In the cluster", v.liveManifest},
		{"manifest", "In the release", v.releaseManifest},
	}
	bodies := make([]g.Group, len(parts))
	var group sync.WaitGroup
	for i, part := range parts {
		if s.Find != nil { // an export finds the files of links in order
			bodies[i] = part.body()
			continue
		}
		group.Go(func() { bodies[i] = part.body() })
	}
	group.Wait()
	for i, part := range parts {
		if bodies[i] != nil {
			content.add(part.id, part.title, bodies[i]...)
		}
	}
	return content, context.Cause(ctx)
}

// findManifest finds the manifest of the object in the release.
func (v *objectView) findManifest() {
	if v.release == nil || v.release.Payload == nil {
		return
	}
	manifests := slices.Concat(v.release.Payload.Manifests, v.release.Payload.Tests)
	if i := slices.IndexFunc(manifests, func(m *payload.Manifest) bool { return m.ID() == v.id }); i >= 0 {
		v.manifest = manifests[i]
	}
}

// read reads the object. It returns an error if the user may not read it.
func (v *objectView) read() error {
	v.resource, v.id = v.served(v.id)
	if err := v.mayDo("get"); err != nil {
		return err
	}
	v.live, v.unread = v.Hub.Cluster.Get(v.ctx, v.id)
	switch {
	case apierrors.IsForbidden(v.unread):
		return diagnosis.ReadError("get "+v.id.String(), v.unread)
	case apierrors.IsNotFound(v.unread) || errors.Is(v.unread, cluster.ErrNotServed):
		v.unread = nil
	}
	return nil
}

// served returns the resource of an object, and the object in its scope: a right in a namespace does not count for
// cluster-scoped objects.
func (v *objectView) served(id kinds.ID) (schema.GroupResource, kinds.ID) {
	served, err := v.Hub.Cluster.FindKind(v.ctx, id.GroupKind())
	if err != nil {
		return schema.ParseGroupResource(kinds.DefinitionName(id.GroupKind())), id
	}
	return served.GroupVersionResource.GroupResource(), served.Scoped(id)
}

// mayDo returns an error unless the user has a right on the object.
func (v *objectView) mayDo(verb string) error { return v.mayDoOn(verb, v.resource, v.id) }

func (v *objectView) mayDoOn(verb string, resource schema.GroupResource, id kinds.ID) error {
	return v.may(v.ctx, authorizationv1.ResourceAttributes{
		Verb: verb, Namespace: id.Namespace, Group: resource.Group, Resource: resource.Resource, Name: id.Name,
	})
}

// why returns the state of the object, and why: as "runlevel why" does.
func (v *objectView) why() g.Group {
	query := why.ObjectQuery{Explainers: v.Hub.Explainers}
	if v.release != nil && v.release.Record != nil {
		query.Namespace, query.Records = v.release.Namespace, []*record.Record{v.release.Record}
	}
	deletes := v.manifest != nil && v.manifest.IsTombstone()
	answers, err := why.Explain(v.ctx, v.Hub.Cluster, query, []why.NamedObject{{ID: v.id, Deletes: deletes}})
	if err != nil {
		return notKnown(err)
	}
	answer := v.permitted(v.withoutLogs(v.ctx, v.id.Namespace, answers)[0])
	if diagnosis.PodsOf(v.live) != nil { // the log has a section
		answer = withoutLog(answer)
	}
	nodes := g.Group{h.P(look.State(objectTones[answer.State], answer.State.Text())),
		messages(v.now(), answer.Messages)}
	var others g.Group
	for _, need := range answer.Needs {
		others = append(others, h.Li(v.objectLink(v.release, need.Object), look.Text(" "+need.Why)))
	}
	for _, hold := range answer.Holds {
		text := " " + string(hold.State)
		if hold.For != "" {
			text += ": " + hold.For
		}
		others = append(others, h.Li(v.objectLink(v.release, hold.Object), look.Text(text)))
	}
	if len(others) > 0 {
		nodes = append(nodes, h.H3(g.Text("Waits for")), h.Ul(others))
	}
	if v.unread != nil {
		answer.Unknown = append(answer.Unknown, printable.RequestError(v.unread).Error())
	}
	if len(answer.Unknown) > 0 {
		nodes = append(nodes, h.H3(g.Text("Not known")), look.List(answer.Unknown))
	}
	return nodes
}

// notKnown returns that something could not be read.
func notKnown(err error) g.Group {
	return g.Group{look.Notice(look.Unknown, h.P(g.Text("Not known: "), look.Lines(err.Error())))}
}

// permitted returns an answer without the facts on other objects that the user may not read: details are about pods and
// their events, and an unmet need reveals that an object does not exist.
func (v *objectView) permitted(answer *why.Answer) *why.Answer {
	shown := *answer
	shown.Needs = nil
	shown.Messages = slices.Clone(answer.Messages)
	for _, need := range answer.Needs {
		resource, id := v.served(need.Object)
		if v.mayDoOn("get", resource, id) == nil {
			shown.Needs = append(shown.Needs, need)
			continue
		}
		shown.Messages = slices.DeleteFunc(shown.Messages, func(message why.Message) bool {
			return strings.HasPrefix(message.Text, "it needs "+need.Object.String()+",")
		})
	}
	events := cmp.Or(v.id.Namespace, metav1.NamespaceDefault)
	if v.mayList(v.ctx, "pods", v.id.Namespace) != nil || v.mayList(v.ctx, "events", events) != nil {
		for i := range shown.Messages {
			shown.Messages[i].Details = nil
		}
	}
	return &shown
}

// sentence returns a section that has only a sentence.
func sentence(text string) g.Group { return g.Group{h.P(look.Text(text))} }

// now returns the time with which ages are computed: that of the status, so that ages change only with it.
func (v *objectView) now() time.Time {
	if v.release != nil {
		return v.release.Status.Time
	}
	return v.Hub.Cluster.Now()
}
