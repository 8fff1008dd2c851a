package cluster

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UserOf returns the connection's user, as the API server knows it; an empty one if the review fails.
func UserOf(ctx context.Context, c *Cluster) authenticationv1.UserInfo {
	answer, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}
	}
	return answer.Status.UserInfo
}
