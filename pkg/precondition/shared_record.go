package precondition

import (
	"cmp"
	"context"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/record/lock"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// maxSubjects limits the subjects of RoleBindings that are reviewed.
const maxSubjects = 20

// writers returns the accounts that may write the record by a RoleBinding in its namespace, without this account and
// the administrators of the cluster. If this account may not list RoleBindings or review the rights of others, writers
// returns none.
func (input Input) writers(ctx context.Context, c *cluster.Cluster) []string {
	if !input.IsShareable {
		return nil
	}
	bindings, err := c.Client.RbacV1().RoleBindings(input.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(bindings.Items) == 0 {
		return nil
	}
	var subjects []rbacv1.Subject
	for _, binding := range bindings.Items {
		for _, subject := range binding.Subjects {
			if !slices.Contains(subjects, subject) && len(subjects) < maxSubjects {
				subjects = append(subjects, subject)
			}
		}
	}
	us, writers := cluster.UserOf(ctx, c), make([]string, len(subjects))
	concurrently(len(subjects), func(i int) {
		spec, name := reviewOf(subjects[i])
		isOurs := spec.User != "" && spec.User == us.Username ||
			spec.User == "" && slices.Contains(us.Groups, subjects[i].Name)
		if !isOurs && input.mayWrite(ctx, c, spec) {
			writers[i] = name
		}
	})
	slices.Sort(writers)
	return slices.DeleteFunc(writers, func(name string) bool { return name == "" })
}

// reviewOf returns the review of a subject's rights, and its name for people.
func reviewOf(subject rbacv1.Subject) (spec authorizationv1.SubjectAccessReviewSpec, name string) {
	const authenticated = "system:authenticated"
	switch subject.Kind {
	case rbacv1.GroupKind:
		return authorizationv1.SubjectAccessReviewSpec{Groups: []string{subject.Name}}, "group " + subject.Name
	case rbacv1.ServiceAccountKind:
		group := "system:serviceaccounts:" + subject.Namespace
		user := "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
		return authorizationv1.SubjectAccessReviewSpec{
			User:   user,
			Groups: []string{"system:serviceaccounts", group, authenticated},
		}, user
	default:
		return authorizationv1.SubjectAccessReviewSpec{User: subject.Name, Groups: []string{authenticated}},
			subject.Name
	}
}

// mayWrite reports whether an account may write the record, and is not an administrator of the cluster.
func (input Input) mayWrite(ctx context.Context, c *cluster.Cluster,
	spec authorizationv1.SubjectAccessReviewSpec) bool {
	isAllowed := func(attributes authorizationv1.ResourceAttributes) bool {
		spec.ResourceAttributes = &attributes
		answer, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed
	}
	right := authorizationv1.ResourceAttributes{
		Namespace: input.Namespace,
		Resource:  configMaps.Resource,
		Name:      lock.Name(input.Record.Release),
		Verb:      "update",
	}
	patch := right
	patch.Verb = "patch"
	return (isAllowed(right) || isAllowed(patch)) &&
		!isAllowed(authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})
}

// judgeShared implements SharedRecord.
func judgeShared(f *Facts) []Finding {
	if len(f.Writers) == 0 {
		return nil
	}
	return []Finding{warns("keeping records in a namespace of their own, or revoking that right",
		"%s may write the record of release %s, and so choose the files that a rollback applies",
		printable.Line(strings.Join(f.Writers, ", ")),
		printable.Line(cmp.Or(f.Record.Release, f.Payload.Name)))}
}
