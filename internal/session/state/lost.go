package state

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/session/why"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An UnrecordedRelease is a release that has objects on the cluster, and no record in the namespace of records.
type UnrecordedRelease struct {
	Name      string   `json:"-"`
	Objects   int      `json:"objects"`             // number of objects of the searched kinds
	Elsewhere []string `json:"elsewhere,omitempty"` // the namespaces that have its record

	newest    *record.HistoryEntry // entry from the annotations of the objects; nil if they have no version
	namespace string
}

// FindLost returns the releases that have objects on the cluster, or only the one with a name. Call it only for
// releases without a record.
func (r *Reader) FindLost(ctx context.Context, name string) ([]UnrecordedRelease, error) {
	found, err := session.FindLost(ctx, r.Cluster)
	if err != nil {
		return nil, err
	}
	var lost []UnrecordedRelease
	for _, release := range found {
		if name != "" && release.Name != name {
			continue
		}
		elsewhere, err := record.Namespaces(ctx, r.Cluster.Client, release.Name)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		lost = append(lost, UnrecordedRelease{
			Name:      release.Name,
			Objects:   release.Objects,
			Elsewhere: elsewhere,
			newest:    release.Newest,
			namespace: r.Namespace,
		})
	}
	return lost, nil
}

// Title returns the version of the release on the cluster, and the namespace of its record.
func (u *UnrecordedRelease) Title() string {
	text := u.Name
	if u.newest != nil {
		text += named(u.newest.Version)
	}
	if len(u.Elsewhere) > 0 {
		return text + ": applied, and its record is in namespace " + u.Elsewhere[0]
	}
	return text + ": applied, and its record is lost"
}

// String returns the state of the objects, and the next command.
func (u *UnrecordedRelease) String() string {
	count := printable.Count(u.Objects, "object")
	if len(u.Elsewhere) > 0 {
		return printable.Line(fmt.Sprintf("%s found; the record is in namespace %s: use --record-namespace %s",
			count, strings.Join(u.Elsewhere, ", "), u.Elsewhere[0]))
	}
	text := fmt.Sprintf("%s found, but no record or Lease copy in namespace %s: ", count, u.namespace)
	if u.namespace == metav1.NamespaceAll {
		text = count + " found, but no record in any namespace: "
	}
	if u.newest == nil {
		return text + "apply the same version or a newer one, which adopts the objects with a new record"
	}
	return printable.Line(fmt.Sprintf("%sannotation %s is %s: apply that version or a newer one, which adopts the "+
		"objects with a new record (runlevel apply %s@, if its files are stored)",
		text, objectmeta.VersionAnnotation, u.newest.Version, u.Name))
}

// NotAppliedLines returns the message that there is no record, and the releases that have objects without a record.
func (r *Reader) NotAppliedLines(ctx context.Context) []string {
	lines := []string{r.NotAppliedMessage("")}
	lost, err := r.FindLost(ctx, "")
	if err != nil {
		return append(lines, "not known: whether objects of a release are on the cluster: "+printable.Line(err.Error()))
	}
	for _, lostRelease := range lost {
		lines = append(lines, "release "+lostRelease.Title(), "  "+lostRelease.String())
	}
	return lines
}

// Explain explains the state of a release, or of all releases if none is named. Without a record, the answer is that
// there is none, or why it can't be read.
func (r *Reader) Explain(ctx context.Context, name string) ([]*why.ReleaseAnswer, error) {
	records, unread := r.KnownRecords(ctx, name)
	answers := []*why.ReleaseAnswer{}
	if unread != "" || len(records) == 0 {
		answer, err := r.explainUnrecorded(ctx, name, unread)
		return append(answers, answer), err
	}
	for _, known := range records {
		answer := r.gather(ctx, known).Explain(ctx, r.Cluster, r.Namespace)
		answer.Messages = append(answer.Messages, r.preflightMessages(ctx, known.Release)...)
		answers = append(answers, answer)
	}
	return answers, context.Cause(ctx)
}

// explainUnrecorded returns the answer on a release without a record that can be read.
func (r *Reader) explainUnrecorded(ctx context.Context, name, unread string) (*why.ReleaseAnswer, error) {
	answer := &why.ReleaseAnswer{
		Release:      cmp.Or(name, payload.DefaultName),
		IsUnrecorded: true,
		Messages:     []why.Message{},
		Objects:      []*why.Answer{},
	}
	if unread != "" {
		answer.Unknown = []string{unread}
		return answer, nil
	}
	lost, err := r.FindLost(ctx, name)
	if err != nil {
		return nil, err
	}
	answer.Messages = append(answer.Messages, why.Message{Text: r.NotAppliedMessage(name)})
	for _, lostRelease := range lost {
		answer.Messages = append(answer.Messages,
			why.Message{Text: "release " + lostRelease.Title() + ": " + lostRelease.String()})
	}
	facts := why.GatherKeeper(ctx, r.Cluster, r.Lock(answer.Release), nil)
	if answer.NotKept, answer.Unknown = facts.NotKept, facts.Unknown; answer.NotKept != nil {
		answer.Messages = append(answer.Messages, answer.NotKept.Sentence())
	}
	return answer, nil
}

// addLost adds the state of a release that has objects and no record. Without a name, it is the only such release.
func (r *Reader) addLost(ctx context.Context, s *Status, name string) {
	lost, err := r.FindLost(ctx, name)
	s.notKnown("whether objects of the release are on the cluster", err)
	index := slices.IndexFunc(lost, func(l UnrecordedRelease) bool { return l.Name == s.Release })
	if index < 0 && len(lost) == 1 {
		index = 0
	}
	for i, release := range lost {
		if i != index {
			s.Others = append(s.Others, release.Name)
		}
	}
	if index < 0 {
		return
	}
	s.Lost, s.Release = &lost[index], lost[index].Name
	if newest := lost[index].newest; newest != nil {
		s.State, s.Version = newest.State, newest.Version
	}
	s.addMessage("%s", s.Lost)
}
