// Package incluster serves the pages in the cluster, beside the operator: the operator reads with its own rights, and
// each user sees only objects that the user may read.
//
// Users have a token of the cluster, in the header of each request or in a session that begins with a login. The API
// server reviews the token and every right. No request changes the cluster, and nothing is read before someone looks.
// Any replica serves, whether it leads or not. The operator does not know the package: the program passes it.
//
// Start with Serve.
package incluster

import (
	"cmp"
	"context"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/machines/overview"
	"github.com/runlevel/runlevel/internal/program/webserver"
	"github.com/runlevel/runlevel/internal/release/applied"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/source"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
	"github.com/runlevel/runlevel/internal/ui/pages"
	"github.com/runlevel/runlevel/internal/ui/server"
	"github.com/runlevel/runlevel/pkg/payload"
)

// Options configure the pages.
type Options struct {
	Serving   webserver.Serving
	Namespace string         // namespace of the records; empty means session.DefaultNamespace
	Source    source.Options // for releases of which the cluster has only the image
}

// Serve adds a server of the pages to a manager, unless it has no address. An address that can't be used does not end
// the operator, which is more important than its pages.
func Serve(ctx context.Context, m ctrl.Manager, connection *rest.Config, o Options) error {
	if o.Serving.Address == "" {
		return nil
	}
	o.Namespace = cmp.Or(o.Namespace, session.DefaultNamespace)
	c, err := cluster.Connect(connection) // not the operator's, whose limits of requests are for its own work
	if err != nil {
		return err
	}
	reviewer, err := webserver.NewReviewer(connection, webserver.DefaultInterval)
	if err != nil {
		return err
	}
	pages := newServer(c, &access{reviewer: reviewer}, o)
	context.AfterFunc(ctx, func() { pages.End("") })
	if err := webserver.Serve(ctx, m, "ui", pages, o.Serving); err != nil {
		ctrl.Log.WithName("ui").Error(err, "can't serve the pages: check --ui, or ui in the settings")
	}
	return nil
}

// newServer returns a server of the pages.
func newServer(c *cluster.Cluster, a *access, o Options) *server.Server {
	options := loader.Options{Source: o.Source, Payload: payload.Options{LeaveOutNewer: true}}
	open := func(ctx context.Context, namespace, release, revision string) (*payload.Payload, error) {
		return applied.Versions{Cluster: c, Namespace: namespace}.Read(ctx, release, revision, options)
	}
	hub := live.New(live.Config{Cluster: c, Namespace: o.Namespace, Open: open, Explainers: overview.Explainers()})
	logout := look.Link{Text: "Log out", Address: logoutAddress}
	serving := server.New(&pages.Site{Hub: hub, Allow: a.allow, Links: []look.Link{logout}}, a)
	serving.Recheck = a.reviewer.Interval / 2
	return serving
}
