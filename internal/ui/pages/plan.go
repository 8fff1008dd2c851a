package pages

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"golang.org/x/sync/errgroup"
	h "maragu.dev/gomponents/html"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/review/plan"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/internal/ui/planpage"
	"github.com/runlevel/runlevel/pkg/payload"
)

// plan returns what an update from one kept version to another would change, as "runlevel plan shop@3 shop@5" does.
func (s *Site) plan(ctx context.Context, namespace, name string, query url.Values) (*Content, error) {
	release, err := s.Hub.Release(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	base, target := query.Get("from"), query.Get("to")
	content := s.contentOf(namespace, name, "Plan of an update")
	fail := func(problem string) (*Content, error) {
		content.add("problem", "", look.Notice(look.Bad, h.P(look.Text(problem))))
		return content, nil
	}
	if release.Record == nil {
		return fail("no version was applied yet")
	}
	content.add("compare", "", s.compareForm(release, release.Record.History, base, target))
	if err := s.may(ctx, authorizationv1.ResourceAttributes{
		Verb: "get", Namespace: namespace, Resource: "secrets",
	}); err != nil {
		return fail("The files of versions are in Secrets: " + err.Error())
	}
	old, err := keptVersion(release.Record, "from", base)
	if err != nil {
		return fail(err.Error())
	}
	next, err := keptVersion(release.Record, "to", target)
	switch {
	case err != nil:
		return fail(err.Error())
	case old.Revision == next.Revision:
		return fail("both versions are revision " + base + ": choose two")
	}
	found, err := s.plans.get(planKey{old.Files.Digest, next.Files.Digest}, func() (*plan.Plan, error) {
		return s.compare(ctx, namespace, name, old.Revision, next.Revision)
	})
	if err != nil {
		return fail(err.Error())
	}
	page := planpage.Page(show.Printer{
		Plan: found, From: versionText(*old), To: versionText(*next),
		Command: fmt.Sprintf("runlevel plan %[1]s@%[2]d %[1]s@%[3]d", name, old.Revision, next.Revision),
	})
	content.Title, content.Sections = page.Title, append(content.Sections, page.Sections...)
	return content, nil
}

// A planKey has the digests of the files of two versions.
type planKey struct{ base, target string }

// compare reads two versions, and returns the plan of the update.
func (s *Site) compare(ctx context.Context, namespace, name string, revisions ...int) (*plan.Plan, error) {
	read := make([]*payload.Payload, len(revisions))
	group, ctx := errgroup.WithContext(ctx)
	for i, revision := range revisions {
		group.Go(func() (err error) {
			read[i], err = s.Hub.Open(ctx, namespace, name, strconv.Itoa(revision))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return plan.Compare(read[0], read[1], nil), nil
}

// keptVersion returns a version of the history by its revision. Its files must be kept.
func keptVersion(known *record.Record, field, revision string) (*record.HistoryEntry, error) {
	if revision == "" {
		return nil, fmt.Errorf("the address lacks %s: name two revisions, such as ?from=3&to=5", field)
	}
	entry, err := known.FindRevision(revision)
	switch {
	case err != nil:
		return nil, err
	case entry.Files == nil:
		return nil, fmt.Errorf("no files are stored for revision %s: it was applied by an older version of runlevel",
			revision)
	case !isKept(*entry):
		return nil, fmt.Errorf("the files of revision %s are not kept: %s", revision, entry.Files.NotKept)
	}
	return entry, nil
}
