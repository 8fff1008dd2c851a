package incluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/program/webserver"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/ui/pages"
	"github.com/runlevel/runlevel/internal/ui/server"
)

// An access admits users with the right to get the path /ui.
//
// Sessions and the tokens of their users are in the memory of one replica only. So a restart ends them, and the Service
// sends a client to the same replica each time. A token in a cookie would need a key that all replicas share, and
// a logout could not end it.
type access struct {
	reviewer *webserver.Reviewer
	sessions sessions
}

type userKey struct{}

// Admit admits a request of a user who may look. The context of the request ends when the user no longer may.
func (a *access) Admit(w http.ResponseWriter, r *http.Request) *http.Request {
	if http.NewCrossOriginProtection().Check(r) != nil {
		server.Refuse(w, http.StatusForbidden, "Not allowed", "Another site has sent this request.")
		return nil
	}
	switch address := r.Method + " " + r.URL.Path; {
	case server.IsAsset(r):
		return r
	case address == "POST "+loginAddress:
		a.login(w, r)
		return nil
	case address == "POST "+logoutAddress:
		a.logout(w, r)
		return nil
	}
	user, refused := a.check(r.Context(), a.token(r))
	switch {
	case refused != nil && refused.status == http.StatusUnauthorized:
		askForToken(w, r, http.StatusUnauthorized, "")
		return nil
	case refused != nil:
		server.Refuse(w, refused.status, refused.title, refused.text)
		return nil
	case r.URL.Path == loginAddress:
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return nil
	case r.URL.Path == logoutAddress:
		offerLogout(w, user.Username)
		return nil
	}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), userKey{}, user))
	admitted := r.WithContext(ctx)
	go a.watch(admitted, user, cancel)
	return admitted
}

// Viewer returns a name for all that decides on the rights of a request.
func (a *access) Viewer(r *http.Request) string { return viewer(userOf(r.Context())) }

// User returns the name of the user of a request.
func (a *access) User(r *http.Request) string { return userOf(r.Context()).Username }

// userOf returns the user of an admitted request; nil for a request of an asset.
func userOf(ctx context.Context) *authenticationv1.UserInfo {
	user, _ := ctx.Value(userKey{}).(*authenticationv1.UserInfo)
	return user
}

// watch cancels a request, which may be a stream, when a later check no longer finds the same user.
func (a *access) watch(r *http.Request, user *authenticationv1.UserInfo, cancel context.CancelFunc) {
	defer cancel()
	tick := time.NewTicker(a.reviewer.Interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
		now, refused := a.check(r.Context(), a.token(r))
		isOutage := refused != nil && refused.status >= http.StatusInternalServerError
		if !isOutage && (refused != nil || viewer(now) != viewer(user)) {
			return
		}
	}
}

// A refusal is the answer to a request of a user who may not look.
type refusal struct {
	status      int
	title, text string
}

// token returns the token of a request or of its session; "" if there is none.
func (a *access) token(r *http.Request) string {
	token := webserver.Token(r)
	if cookie, err := r.Cookie(sessionCookie(r)); err == nil && token == "" {
		return a.sessions.token(cookie.Value)
	}
	return token
}

// check returns the user of a token, or why its requests are refused.
func (a *access) check(ctx context.Context, token string) (*authenticationv1.UserInfo, *refusal) {
	user, err := a.reviewer.User(ctx, token)
	switch {
	case errors.Is(err, webserver.ErrTooManyTokens):
		return nil, &refusal{http.StatusServiceUnavailable, "Too many logins", "Try again in a few seconds."}
	case err != nil:
		return nil, unreviewed("The token can't be reviewed", err)
	case user == nil:
		return nil, &refusal{status: http.StatusUnauthorized}
	}
	right := &authorizationv1.NonResourceAttributes{Path: "/ui", Verb: "get"}
	isAllowed, err := a.reviewer.Allows(ctx, user, nil, right)
	switch {
	case err != nil:
		return nil, unreviewed("The rights can't be reviewed", err)
	case !isAllowed:
		return nil, &refusal{http.StatusForbidden, "Not allowed", fmt.Sprintf(
			"User %s lacks the right to get the path /ui. An administrator grants it: %s", user.Username,
			kubectlCreate("clusterrolebinding", "runlevel-ui",
				[]string{"--clusterrole=runlevel-ui", subject(user.Username)}))}
	}
	return user, nil
}

// unreviewed returns the refusal after a failed review. The error may name addresses of the cluster, so it is only in
// the log.
func unreviewed(title string, err error) *refusal {
	ctrl.Log.WithName("ui").Error(err, title)
	return &refusal{http.StatusBadGateway, title, "The API server does not respond. Try again."}
}

// viewer returns a name for a user with all that decides on its rights.
func viewer(user *authenticationv1.UserInfo) string {
	text, _ := json.Marshal(user) // it has only texts
	return string(text)
}

// subject returns the flag of kubectl that names a user.
func subject(user string) string {
	if account, isAccount := strings.CutPrefix(user, "system:serviceaccount:"); isAccount {
		return "--serviceaccount=" + account
	}
	return "--user=" + user
}

// allow returns an error unless the user of the context has a right.
func (a *access) allow(ctx context.Context, right authorizationv1.ResourceAttributes) error {
	user := userOf(ctx)
	if user == nil {
		return fmt.Errorf("%w: the request has no user", pages.ErrForbidden)
	}
	isAllowed, err := a.reviewer.Allows(ctx, user, &right, nil)
	switch {
	case err != nil:
		return fmt.Errorf("review the rights of user %s: %w", user.Username, err)
	case !isAllowed:
		return fmt.Errorf("%w: user %s lacks the right to %s. An administrator grants it: %s", pages.ErrForbidden,
			user.Username, describe(right), grant(right, user.Username))
	}
	return nil
}

// resource returns the resource of a right, as kubectl names it.
func resource(right authorizationv1.ResourceAttributes) string {
	name := right.Resource
	if right.Group != "" {
		name += "." + right.Group
	}
	if right.Subresource != "" {
		name += "/" + right.Subresource
	}
	return name
}

// describe returns a right in words.
func describe(right authorizationv1.ResourceAttributes) string {
	text := right.Verb + " " + resource(right)
	if right.Name != "" {
		text += " " + right.Name
	}
	if right.Namespace != "" {
		text += " in namespace " + right.Namespace
	}
	return text
}

// grant returns the commands that grant a right to a user.
func grant(right authorizationv1.ResourceAttributes, user string) string {
	kind := "clusterrole"
	name := strings.ReplaceAll(strings.TrimSuffix(right.Verb+"-"+resource(right)+"-"+right.Name, "-"), "/", "-")
	rule := []string{"--verb=" + right.Verb, "--resource=" + resource(right)}
	if right.Name != "" {
		rule = append(rule, "--resource-name="+right.Name)
	}
	binding := []string{}
	if right.Namespace != "" {
		kind = "role"
		rule, binding = append(rule, "--namespace="+right.Namespace), []string{"--namespace=" + right.Namespace}
	}
	binding = slices.Concat([]string{"--" + kind + "=" + name, subject(user)}, binding)
	return kubectlCreate(kind, name, rule) + " && " + kubectlCreate(kind+"binding", name, binding)
}

func kubectlCreate(kind, name string, flags []string) string {
	line := "kubectl create " + kind
	for _, word := range append([]string{name}, flags...) {
		line += " " + printable.ShellWord(word)
	}
	return line
}
