package hostpods

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An issuer numbers its tokens, each of which is valid for as long as was asked.
type issuer struct {
	now    time.Time
	issued int
	fails  bool
}

func (i *issuer) CreateToken(_ context.Context, account string, request *authenticationv1.TokenRequest,
	_ metav1.CreateOptions,
) (*authenticationv1.TokenRequest, error) {
	if i.fails {
		return nil, errors.New("away")
	}
	i.issued++
	request.Status.Token = fmt.Sprintf("%s of %s for %s: %d", account, request.Spec.BoundObjectRef.Name,
		request.Spec.Audiences, i.issued)
	request.Status.ExpirationTimestamp = metav1.NewTime(
		i.now.Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second),
	)
	return request, nil
}

func TestTokensAreRenewedBeforeTheyExpire(t *testing.T) {
	i := &issuer{now: time.Unix(1e9, 0)}
	held := newTokens(i, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{ServiceAccountName: "worker"},
	})
	held.now = func() time.Time { return i.now }
	for _, step := range []struct {
		after    time.Duration
		audience string
		fails    bool
		want     string
	}{
		{want: "worker of web for []: 1"},
		{after: 47 * time.Minute, want: "worker of web for []: 1"},
		{audience: "vault", want: "worker of web for [vault]: 2"},
		{after: 2 * time.Minute, fails: true},
		{want: "worker of web for []: 3"},
		{after: 46 * time.Minute, audience: "vault", want: "worker of web for [vault]: 4"},
		{want: "worker of web for []: 3"},
	} {
		i.now, i.fails = i.now.Add(step.after), step.fails
		hour := int64(3600) // another pointer each time
		got, err := held.get(t.Context(),
			corev1.ServiceAccountTokenProjection{Audience: step.audience, ExpirationSeconds: &hour})
		if string(got) != step.want || (err != nil) != step.fails {
			t.Errorf("%+v: got %q, %v", step, got, err)
		}
	}
}
