package webserver

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	ctrl "sigs.k8s.io/controller-runtime"
)

// DefaultInterval is the time after which a token and a right are reviewed again.
const DefaultInterval = time.Minute

// ErrTooManyTokens is the error for a token that was not accepted before, if there were too many of them.
var ErrTooManyTokens = errors.New("too many unknown tokens")

// A Reviewer finds out who a client is and what it may do. It remembers the answers of the API server for an interval,
// and refusals for a sixth as long, so that a right that was just granted counts soon.
//
// Everybody in the network can send tokens: the limit of unknown ones protects the API server and the answers for
// users.
type Reviewer struct {
	Interval time.Duration

	client  kubernetes.Interface
	answers *cache.LRUExpireCache // users and decisions, by the digest of the question: it has no tokens
	known   *cache.LRUExpireCache // the digests of tokens that were accepted
	unknown flowcontrol.PassiveRateLimiter
}

const (
	maxAnswers     = 4096
	maxKnown       = 4096
	knownAge       = 24 * time.Hour
	maxUnknown     = 10 // tokens in a second
	maxBurst       = 50
	reviewPatience = 10 * time.Second // for one review
)

// NewReviewer returns a reviewer that asks again after an interval.
func NewReviewer(connection *rest.Config, interval time.Duration) (*Reviewer, error) {
	client, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, err
	}
	return &Reviewer{interval, client, cache.NewLRUExpireCache(maxAnswers), cache.NewLRUExpireCache(maxKnown),
		flowcontrol.NewTokenBucketPassiveRateLimiter(maxUnknown, maxBurst)}, nil
}

// User returns the user of a token; nil if there is no token, or the API server does not accept it.
func (r *Reviewer) User(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	if token == "" {
		return nil, nil
	}
	spec, digest := authenticationv1.TokenReviewSpec{Token: token}, sha256.Sum256([]byte(token))
	return remembered(ctx, r, spec, func(ctx context.Context) (*authenticationv1.UserInfo, bool, error) {
		if _, isKnown := r.known.Get(digest); !isKnown && !r.unknown.TryAccept() {
			return nil, false, ErrTooManyTokens
		}
		review, err := r.client.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || !review.Status.Authenticated {
			return nil, false, err
		}
		r.known.Add(digest, true, knownAge)
		return &review.Status.User, true, nil
	})
}

// Allows reports whether a user has the right of a resource or of a path.
func (r *Reviewer) Allows(ctx context.Context, user *authenticationv1.UserInfo,
	resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, ResourceAttributes: resource,
		NonResourceAttributes: path, Extra: map[string]authorizationv1.ExtraValue{},
	}
	for name, values := range user.Extra {
		spec.Extra[name] = authorizationv1.ExtraValue(values)
	}
	return remembered(ctx, r, spec, func(ctx context.Context) (bool, bool, error) {
		review, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err == nil && review.Status.Allowed, err
	})
}

// remembered returns the last answer to a question, or asks.
func remembered[A any](ctx context.Context, r *Reviewer, question any,
	ask func(context.Context) (answer A, isPositive bool, err error)) (answer A, err error) {
	text, err := json.Marshal(question)
	if err != nil {
		return answer, err
	}
	key := sha256.Sum256(fmt.Appendf(text, "%T", question))
	if last, isKnown := r.answers.Get(key); isKnown {
		return last.(A), nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewPatience)
	defer cancel()
	answer, isPositive, err := ask(ctx)
	if err != nil {
		return answer, err
	}
	age := r.Interval
	if !isPositive {
		age /= 6
	}
	r.answers.Add(key, answer, age)
	return answer, nil
}

// Token returns the bearer token of a request; "" if it has none.
func Token(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// protect lets a handler answer only clients with the right to get its path.
func (r *Reviewer) protect(handler http.Handler) http.Handler {
	log := ctrl.Log.WithName("metrics")
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		user, err := r.User(request.Context(), Token(request))
		switch {
		case err != nil:
			log.Error(err, "Authentication failed")
			http.Error(w, "Authentication failed", http.StatusInternalServerError)
			return
		case user == nil:
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		right := &authorizationv1.NonResourceAttributes{Path: request.URL.Path, Verb: strings.ToLower(request.Method)}
		isAllowed, err := r.Allows(request.Context(), user, nil, right)
		switch {
		case err != nil:
			message := fmt.Sprintf("Authorization for user %s failed", user.Username)
			log.Error(err, message)
			http.Error(w, message, http.StatusInternalServerError)
		case !isAllowed:
			http.Error(w, "Authorization denied for user "+user.Username, http.StatusForbidden)
		default:
			handler.ServeHTTP(w, request)
		}
	})
}
