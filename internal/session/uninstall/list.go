package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/inventory"
	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/text/reason"
)

// kinds returns the kinds to list: those that the record has or, if it is lost, all.
func (l *looker) kinds(ctx context.Context, p *Plan, isFound bool) ([]schema.GroupKind, error) {
	if isFound && l.store.Loss() == "" {
		return p.record.GroupKinds(), nil
	}
	all, unknown, err := l.cluster.AllKinds(ctx)
	if err != nil {
		return nil, err
	}
	for group := range unknown {
		p.Notes = append(p.Notes, "objects of "+group+" are not looked for, since the API server can't list its kinds")
	}
	slices.Sort(p.Notes)
	var of []schema.GroupKind
	for _, in := range all {
		if slices.Contains(in.Verbs, "list") && slices.Contains(in.Verbs, "delete") && in.Kind != "Event" {
			of = append(of, in.GroupKind())
		}
	}
	return of, nil
}

// labelled returns the objects of some kinds that have the label of a release, and those that are tests of this one.
func (l *looker) labelled(ctx context.Context, of, ofTests []schema.GroupKind) ([]objectmeta.LiveMetadata, error) {
	scopes := inventory.Everywhere(of)
	for _, kind := range of {
		for _, namespace := range l.options.In {
			scopes = append(scopes, inventory.Scope{Kind: kind, Namespace: namespace})
		}
	}
	live, err := inventory.Take(ctx, l.cluster, scopes, nil)
	if err != nil {
		return nil, err
	}
	if err := l.unlisted(live); err != nil {
		return nil, err
	}
	var all []objectmeta.LiveMetadata
	for id := range live.IDs() {
		head, _ := live.Find(id)
		all = append(all, head)
	}
	all = append(all, l.tests(ctx, ofTests)...)
	slices.SortFunc(all, func(a, b objectmeta.LiveMetadata) int { return kinds.Compare(a.ID, b.ID) })
	return all, nil
}

// testKinds are the kinds that tests have.
var testKinds = []schema.GroupKind{kinds.Job, kinds.Pod}

// tests returns the tests of the release that are left, as objects of the release. Those that may not be listed are
// left out: the release does not need them.
func (l *looker) tests(ctx context.Context, of []schema.GroupKind) []objectmeta.LiveMetadata {
	var found []objectmeta.LiveMetadata
	options := metav1.ListOptions{LabelSelector: objectmeta.TestLabel + "=" + l.options.Release}
	for _, kind := range testKinds {
		in, err := l.cluster.FindKind(ctx, kind)
		if err != nil || !slices.Contains(of, kind) {
			continue
		}
		add := func(object *metav1.PartialObjectMetadata) {
			head := objectmeta.Of(in, object)
			head.Release = l.options.Release
			found = append(found, head)
		}
		if err := l.cluster.EachMetadata(ctx, in, metav1.NamespaceAll, options, add); !apierrors.IsForbidden(err) {
			continue
		}
		for _, namespace := range l.options.In {
			_ = l.cluster.EachMetadata(ctx, in, namespace, options, add)
		}
	}
	return found
}

// unlisted returns an error if it is not known what the release has of a kind. A user who may not list a kind in the
// whole cluster names the namespaces of the release.
func (l *looker) unlisted(live *inventory.Inventory) error {
	isKnown := func(kind schema.GroupKind) bool {
		isCovered := func(namespace string) bool {
			return live.Covers(kinds.NewID(kind, namespace, ""))
		}
		isOutside := func(namespace string) bool { return !isCovered(namespace) }
		return apierrors.IsNotFound(live.ListError(kind)) ||
			len(l.options.In) > 0 && !slices.ContainsFunc(l.options.In, isOutside)
	}
	unlisted := slices.DeleteFunc(live.UnlistedKinds(), isKnown)
	if len(unlisted) == 0 {
		return nil
	}
	var texts []string
	for _, kind := range unlisted {
		texts = append(texts, kind.String())
	}
	message := fmt.Sprintf("it is not known which objects of %s release %s has", printable.Few(texts, mostNamed),
		l.options.Release)
	if apierrors.IsForbidden(live.ListError(unlisted[0])) {
		message += "; who may not list them in the whole cluster names the namespaces of the release with --namespace"
	}
	return &reason.Error{Reason: ReasonUnlisted, Message: message, Err: printable.Error(live.ListError(unlisted[0]))}
}

// read returns the metadata of an object; nil if it is gone.
func (l *looker) read(ctx context.Context, id kinds.ID) (*objectmeta.LiveMetadata, error) {
	in, err := l.cluster.FindOrGone(ctx, id.GroupKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := l.cluster.GetMetadata(ctx, in, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	head := objectmeta.Of(in, found)
	return &head, nil
}
