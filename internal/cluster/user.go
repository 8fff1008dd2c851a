package cluster

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UserOf returns the name of the connection's user, as the API server knows it; "" if the review fails.
func UserOf(ctx context.Context, c *Cluster) string {
	answer, err := c.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return ""
	}
	return answer.Status.UserInfo.Username
}
