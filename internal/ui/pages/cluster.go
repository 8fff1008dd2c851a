package pages

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/session/state"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/pkg/graph/draw"
)

// cluster returns the page on the ClusterVersion and the ClusterOperators.
func (s *Site) cluster(ctx context.Context) (*Content, error) {
	if err := s.mayReadVersion(ctx); err != nil {
		return nil, err
	}
	page := look.Page{Title: "ClusterVersion and ClusterOperators", Menu: s.clusterMenu(ctx)}
	page.Sections = append(s.versionSections(ctx), s.operatorSection(ctx))
	return &Content{Page: page, Topic: live.Topic{Kind: live.OfReleases}}, nil
}

// mayReadVersion returns an error unless the user may read the ClusterVersion, and with it the ClusterOperators.
func (s *Site) mayReadVersion(ctx context.Context) error {
	return s.may(ctx, authorizationv1.ResourceAttributes{Verb: "get", Group: kinds.ClusterVersion.Group,
		Resource: "clusterversions", Name: kinds.ClusterVersionName})
}

// versionSections returns sections on the ClusterVersion.
func (s *Site) versionSections(ctx context.Context) []look.Section {
	version, err := why.ReadClusterVersion(ctx, s.Hub.Cluster)
	switch {
	case errors.Is(err, cluster.ErrNotServed), apierrors.IsNotFound(err):
		return []look.Section{{ID: "version", Title: "ClusterVersion", Body: g.Group{
			h.P(g.Text("The cluster has no ClusterVersion, so no operator updates it. Apply releases with "),
				look.Command("runlevel apply SOURCE")),
		}}}
	case err != nil:
		return []look.Section{{ID: "version", Title: "ClusterVersion", Body: g.Group{notKnown(err)}}}
	}
	now := s.Hub.Cluster.Now()
	return []look.Section{
		{ID: "version", Title: "ClusterVersion", Body: g.Group{versionFacts(version)}},
		{ID: "conditions", Title: "Conditions", Body: g.Group{
			conditionTable(now, "Conditions of the ClusterVersion", state.ConditionsOf(version.Status.Conditions)),
		}},
		{ID: "updates", Title: "Available updates", Body: g.Group{updateTable(version)}},
		{ID: "history", Title: "History", Body: g.Group{historyTable(now, version)}},
	}
}

// versionFacts returns the version, the requested one, and the source of updates.
func versionFacts(v *configv1.ClusterVersion) g.Node {
	facts := []look.Fact{
		{Name: "Version", Value: look.Text(cmp.Or(v.Status.Desired.Version, "-"))},
		{Name: "Image", Value: look.Text(cmp.Or(v.Status.Desired.Image, "-"))},
		{Name: "Channel", Value: look.Text(cmp.Or(v.Spec.Channel, "none: no updates are looked up"))},
		{Name: "Update service", Value: look.Text(cmp.Or(string(v.Spec.Upstream), "the default"))},
		{Name: "Cluster ID", Value: look.Text(cmp.Or(string(v.Spec.ClusterID), "-"))},
	}
	if wanted := v.Spec.DesiredUpdate; wanted != nil {
		facts = slices.Insert(facts, 2, look.Fact{Name: "Requested",
			Value: look.Text(strings.TrimSpace(wanted.Version + " " + wanted.Image))})
	}
	return look.Facts(facts...)
}

// conditionTable returns conditions, the most urgent first.
func conditionTable(now time.Time, caption string, all []state.Condition) g.Node {
	if len(all) == 0 {
		return h.P(g.Text("No condition is reported yet."))
	}
	slices.SortStableFunc(all, func(a, b state.Condition) int {
		return draw.CompareUrgency(conditionTone(a), conditionTone(b))
	})
	return tableOf(caption, []string{"Condition", "Since", "Reason", "Message"}, all,
		func(c state.Condition) (string, []g.Node) {
			return look.ID("condition", c.Type), []g.Node{
				conditionState(c), look.Age(now, c.Since), look.Text(cmp.Or(c.Reason, "-")), look.Lines(c.Message),
			}
		})
}

// conditionState returns a condition with its tone.
func conditionState(c state.Condition) g.Node {
	return look.State(conditionTone(c), c.Type+"="+c.Status)
}

func conditionTone(c state.Condition) look.Tone {
	switch {
	case c.IsHealthy():
		return look.Good
	case c.Status == string(configv1.ConditionUnknown):
		return look.Unknown
	case c.Type == string(configv1.OperatorProgressing):
		return look.Active
	case c.Type == string(configv1.OperatorUpgradeable):
		return look.Waiting
	default:
		return look.Bad
	}
}

// updateTable returns the available updates, and why some are not recommended.
func updateTable(v *configv1.ClusterVersion) g.Node {
	table := look.Table{Caption: "Available updates", Columns: []string{"Version", "Recommended", "Why", "Image"}}
	add := func(release configv1.Release, tone look.Tone, word string, reason g.Node) {
		if len(table.Rows) < maxRows {
			table.IDs = append(table.IDs, look.ID("update", release.Version))
			table.Rows = append(table.Rows, []g.Node{look.Text(release.Version), look.State(tone, word), reason,
				look.Text(release.Image)})
		}
	}
	for _, release := range v.Status.AvailableUpdates {
		add(release, look.Good, "yes", g.Text("-"))
	}
	for _, update := range v.Status.ConditionalUpdates {
		c := meta.FindStatusCondition(update.Conditions, "Recommended")
		switch {
		case c == nil:
			add(update.Release, look.Unknown, "not known yet", g.Text("-"))
		case c.Status == "False":
			add(update.Release, look.Bad, "no", g.Group{look.Text(c.Reason + ": "), look.Lines(c.Message)})
		case c.Status != "True": // else it is among the available updates
			add(update.Release, look.Unknown, "not known", g.Group{look.Text(c.Reason + ": "), look.Lines(c.Message)})
		}
	}
	if len(table.Rows) == 0 {
		return h.P(g.Text("The update service offers no update."))
	}
	return g.Group{table.Node(), h.P(g.Text("To begin an update: "), look.Command("oc adm upgrade --to VERSION"))}
}

// historyTable returns the history of the ClusterVersion, the newest first.
func historyTable(now time.Time, v *configv1.ClusterVersion) g.Node {
	if len(v.Status.History) == 0 {
		return h.P(g.Text("No version was applied yet."))
	}
	table := look.Table{Caption: "History of the ClusterVersion, the newest first",
		Columns: []string{"Version", "State", "Begun", "Took", "Verified", "Image"}}
	for i, entry := range v.Status.History[:min(maxRows, len(v.Status.History))] {
		tone, took, verified := look.Later, "-", "no"
		if i == 0 {
			tone = look.Active
		}
		if entry.State == configv1.CompletedUpdate {
			tone = look.Good
		}
		if entry.CompletionTime != nil {
			took = printable.Age(entry.CompletionTime.Time, entry.StartedTime.Time)
		}
		if entry.Verified {
			verified = "yes"
		}
		accepted := g.Node(nil)
		if entry.AcceptedRisks != "" {
			accepted = h.P(g.Text("Accepted risks: "), look.Lines(entry.AcceptedRisks))
		}
		table.Rows = append(table.Rows, []g.Node{
			look.Text(cmp.Or(entry.Version, "-")), look.State(tone, string(entry.State)),
			g.Group{look.Age(now, entry.StartedTime.Time), g.Text(" ago")}, g.Text(took),
			g.Group{g.Text(verified), accepted}, look.Text(entry.Image),
		})
	}
	return table.Node()
}

// operatorSection returns all ClusterOperators, the unhealthy ones first.
func (s *Site) operatorSection(ctx context.Context) look.Section {
	section := look.Section{ID: "operators", Title: "ClusterOperators"}
	operators, err := (&state.Reader{Cluster: s.Hub.Cluster}).Operators(ctx)
	switch {
	case errors.Is(err, cluster.ErrNotServed), err == nil && len(operators) == 0:
		section.Body = g.Group{h.P(g.Text("The cluster has no ClusterOperators."))}
		return section
	case err != nil:
		section.Body = g.Group{notKnown(err)}
	}
	if len(operators) > 0 {
		section.Body = append(section.Body,
			s.operatorTable(s.Hub.Cluster.Now(), "ClusterOperators, the unhealthy ones first", operators))
	}
	return section
}

// operatorTable returns ClusterOperators, with the reasons of conditions that are not healthy.
func (s *Site) operatorTable(now time.Time, caption string, all []state.OperatorStatus) g.Node {
	return tableOf(caption, []string{"Operator", "Version", "Conditions", "Why"}, all,
		func(operator state.OperatorStatus) (string, []g.Node) {
			var conditions, reasons g.Group
			for _, c := range operator.Conditions {
				conditions = append(conditions, h.Li(conditionState(c)))
				if text := strings.Trim(c.Reason+": "+c.Message, ": "); text != "" && !c.IsHealthy() {
					reasons = append(reasons, h.Li(look.Text(c.Type), g.Text(", for "), look.Age(now, c.Since),
						g.Text(": "), look.Lines(text)))
				}
			}
			return look.ID("operator", operator.Name), []g.Node{
				s.namedLink(operator.Name, kinds.NewID(kinds.ClusterOperator, "", operator.Name)),
				look.Text(cmp.Or(operator.Version, "-")), h.Ul(conditions), g.If(len(reasons) > 0, h.Ul(reasons)),
			}
		})
}

// version returns the ClusterVersion in short, if it is about this release.
func (v releaseView) version() look.Section {
	read := v.Status.ClusterVersion
	if v.refused != nil {
		return look.Section{ID: "version", Title: "ClusterVersion", Body: sentence(v.refused.Error())}
	}
	if read == nil {
		return look.Section{}
	}
	body := g.Group{h.P(look.Link{Text: "Version " + printable.Line(cmp.Or(read.Version, "-")),
		Address: v.site.address("/cluster")}.Node())}
	if read.Requested != "" {
		body = append(body, h.P(g.Text("Requested: "), look.Text(read.Requested)))
	}
	if problems := read.Problems(); len(problems) > 0 {
		body = append(body, conditionTable(v.Status.Time, "Unhealthy conditions of the ClusterVersion", problems))
	}
	var recommended, others []string
	for _, update := range read.Updates {
		if update.Recommended == "True" {
			recommended = append(recommended, printable.Line(update.Version))
		} else {
			others = append(others, printable.Line(update.Version+" ("+update.Reason+")"))
		}
	}
	if len(recommended) > 0 {
		body = append(body, h.P(look.Text("Available updates: "+printable.Few(recommended, maxNamed))))
	}
	if len(others) > 0 {
		body = append(body, h.P(look.Text("Updates that are not recommended: "+printable.Few(others, maxNamed))))
	}
	return look.Section{ID: "version", Title: "ClusterVersion", Body: body}
}

// operators returns the ClusterOperators of the release that are not healthy.
func (v releaseView) operators() look.Section {
	if len(v.Status.Operators) == 0 {
		return look.Section{}
	}
	return look.Section{ID: "operators", Title: "ClusterOperators that are not healthy", Body: g.Group{
		v.site.operatorTable(v.Status.Time, "ClusterOperators that are not healthy", v.Status.Operators),
	}}
}
