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
		p.Notes = append(p.Notes, "objects of "+group+" are not searched: the API server can't list its kinds")
	}
	slices.Sort(p.Notes)
	var deletable []schema.GroupKind
	for _, resource := range all {
		isDeletable := slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete")
		if isDeletable && resource.Kind != "Event" {
			deletable = append(deletable, resource.GroupKind())
		}
	}
	return deletable, nil
}

// labelled returns the objects of some kinds that have the label of any release, and the tests of this release.
func (l *looker) labelled(ctx context.Context, kindsToList, kindsOfTests []schema.GroupKind,
) ([]objectmeta.LiveMetadata, error) {
	scopes := inventory.Everywhere(kindsToList)
	for _, kind := range kindsToList {
		for _, namespace := range l.options.In {
			scopes = append(scopes, inventory.Scope{Kind: kind, Namespace: namespace})
		}
	}
	live, err := inventory.Take(ctx, l.cluster, scopes, nil)
	if err != nil {
		return nil, err
	}
	if err := l.checkListed(live); err != nil {
		return nil, err
	}
	var all []objectmeta.LiveMetadata
	for id := range live.IDs() {
		head, _ := live.Find(id)
		all = append(all, head)
	}
	all = append(all, l.tests(ctx, kindsOfTests)...)
	slices.SortFunc(all, func(a, b objectmeta.LiveMetadata) int { return kinds.Compare(a.ID, b.ID) })
	return all, nil
}

// testKinds are the kinds of tests.
var testKinds = []schema.GroupKind{kinds.Job, kinds.Pod}

// tests returns the tests of the release that still exist, as objects of the release. It ignores kinds that the user
// may not list: the release does not need its tests.
func (l *looker) tests(ctx context.Context, kindsToList []schema.GroupKind) []objectmeta.LiveMetadata {
	var found []objectmeta.LiveMetadata
	options := metav1.ListOptions{LabelSelector: objectmeta.TestLabel + "=" + l.options.Release}
	for _, kind := range testKinds {
		resource, err := l.cluster.FindKind(ctx, kind)
		if err != nil || !slices.Contains(kindsToList, kind) {
			continue
		}
		add := func(object *metav1.PartialObjectMetadata) {
			head := objectmeta.Of(resource, object)
			head.Release = l.options.Release
			found = append(found, head)
		}
		if err := l.cluster.EachMetadata(ctx, resource, metav1.NamespaceAll, options,
			add); !apierrors.IsForbidden(err) {
			continue
		}
		for _, namespace := range l.options.In {
			_ = l.cluster.EachMetadata(ctx, resource, namespace, options, add)
		}
	}
	return found
}

// checkListed returns an error if the objects of a kind could not be listed. A user who may not list a kind in all
// namespaces has to name the namespaces of the release.
func (l *looker) checkListed(live *inventory.Inventory) error {
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
	message := fmt.Sprintf("cannot find out which objects of %s belong to release %s",
		printable.Few(texts, maxNamed), l.options.Release)
	if apierrors.IsForbidden(live.ListError(unlisted[0])) {
		message += "; if you may not list them in all namespaces, name those of the release with --namespace"
	}
	return &reason.Error{Reason: ReasonUnlisted, Message: message, Err: printable.Error(live.ListError(unlisted[0]))}
}

// read returns the metadata of an object; nil if the object does not exist.
func (l *looker) read(ctx context.Context, id kinds.ID) (*objectmeta.LiveMetadata, error) {
	resource, err := l.cluster.FindOrGone(ctx, id.GroupKind())
	if errors.Is(err, cluster.ErrNotServed) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := l.cluster.GetMetadata(ctx, resource, id.Namespace, id.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	head := objectmeta.Of(resource, found)
	return &head, nil
}
