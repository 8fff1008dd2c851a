// Package ui defines the verb that shows releases in a browser.
//
// The verb connects to a cluster, and serves the pages of internal/ui on this machine. It changes nothing.
//
// New returns the verb ui. Start with New.
package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/cluster/diagnosis"
	"github.com/runlevel/runlevel/internal/record"
	"github.com/runlevel/runlevel/internal/release/applied"
	"github.com/runlevel/runlevel/internal/release/loader"
	"github.com/runlevel/runlevel/internal/session"
	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/pages"
	"github.com/runlevel/runlevel/internal/ui/server"
	"github.com/runlevel/runlevel/pkg/payload"
)

// flags are the flags of runlevel ui.
type flags struct {
	cluster core.ClusterFlags
	format  core.Output
	name    string
	port    uint16
	noOpen  bool
	idle    time.Duration
	export  string

	explainers []diagnosis.Explainer
}

const help = `Show the releases on a cluster in a browser: the graph of each release with the state of its parts,
progress, waits with their reasons, pending deletes, gates, history, and each object with its events
and logs. The pages follow what happens on the cluster. Nothing can be changed in them.

The command serves the pages on 127.0.0.1, with the rights of the kubeconfig, and opens a browser. The
printed address has a token, for which a browser gets a cookie; without it, no other user or site can
read the pages. The address works as long as the command runs. Keep it secret.

NAME opens the page of that release.

The command ends with Ctrl-C, or after --idle without an open page.

With --export, the command writes the pages as files that need no server, for an incident or a pull
request. Values of Secrets are not in them, but environment variables and logs are: read the files
before you send them. Of objects that are ready, at most 200 of each release have a page.

Exit codes: 0 after Ctrl-C, --idle or a complete export; 1 if the cluster does not respond, has no such
release, or an export is interrupted or lacks a page; 2 for misuse, such as a port in use.`

const examples = `  runlevel ui

  # One release
  runlevel ui shop

  # On another machine: keep the number of the port
  ssh -t -L 8080:127.0.0.1:8080 HOST runlevel ui --no-open --port 8080

  # As files
  runlevel ui shop --export ./incident

  # For a script
  runlevel ui --no-open -o json | jq -r .address`

// New returns the verb ui. Explainers explain the objects of further kinds.
func New(streams core.Streams, explainers ...diagnosis.Explainer) *cobra.Command {
	f := flags{explainers: explainers}
	command := &cobra.Command{
		Use:     "ui",
		Short:   "Show the releases on a cluster in a browser",
		Long:    help,
		Example: examples,
		RunE: func(command *cobra.Command, _ []string) error {
			return f.run(command.Context(), streams)
		},
	}
	core.AddConnectionFlags(command, &f.cluster)
	core.AddReleaseName(command, &f.cluster, &f.name, "the release whose page is opened")
	core.AddOutput(command, &f.format, core.Text, core.JSON)
	all := command.Flags()
	all.StringVar(&f.cluster.Namespace, "record-namespace", "",
		"the namespace of the releases' records (default: all, or "+session.DefaultNamespace+
			" if this user may not list those of all namespaces)")
	all.Uint16Var(&f.port, "port", 0, "the port of the address (default: a free one)")
	all.BoolVar(&f.noOpen, "no-open", false, "open no browser")
	all.StringVar(&f.export, exportFlag, "",
		"write the pages as files into this new folder, and open none: index.html is the first")
	all.DurationVar(&f.idle, "idle", 30*time.Minute, "end after this time without an open page; 0 means never")
	return command
}

// A Report is the output of -o json: an address, or a folder.
type Report struct {
	Address string `json:"address,omitempty"` // first address of the pages, with a token

	Folder  string   `json:"folder,omitempty"` // folder of --export
	Pages   int      `json:"pages,omitempty"`
	LeftOut int      `json:"leftOut,omitempty"` // objects without a page, which are all ready
	Unread  []string `json:"unread,omitempty"`  // pages that could not be read, and the reasons
}

func (f *flags) run(ctx context.Context, streams core.Streams) error {
	if f.idle < 0 {
		return core.Misusef("--idle: %s is negative: use 0 to serve until Ctrl-C", f.idle)
	}
	if f.export != "" {
		if err := core.CheckFree(exportFlag, f.export); err != nil {
			return err
		}
	}
	c, err := f.cluster.Connect(ctx)
	if err != nil {
		return err
	}
	page, err := f.firstPage(ctx, c)
	if err != nil {
		return err
	}
	hub := live.New(live.Config{
		Cluster: c, Namespace: f.cluster.Namespace, Explainers: f.explainers,
		Open: func(ctx context.Context, namespace, release, revision string) (*payload.Payload, error) {
			return applied.Versions{Cluster: c, Namespace: namespace}.Read(ctx, release, revision, loader.Options{})
		},
	})
	if f.export != "" {
		return f.writeFiles(ctx, hub, page, streams)
	}
	return f.serve(ctx, server.New(&pages.Site{Hub: hub}, nil), page, streams)
}

// firstPage returns the page to open, and sets the namespace of the records.
func (f *flags) firstPage(ctx context.Context, c *cluster.Cluster) (string, error) {
	namespaces := []string{f.cluster.Namespace}
	if f.cluster.Namespace == "" {
		var err error
		namespaces, err = record.Namespaces(ctx, c.Client, f.name)
		switch {
		case apierrors.IsForbidden(err):
			f.cluster.Namespace = session.DefaultNamespace
			namespaces = []string{session.DefaultNamespace}
		case err != nil:
			return "", err
		}
	}
	switch {
	case f.name == "":
		return "/", nil
	case len(namespaces) == 0:
		return "", fmt.Errorf("no namespace has a record of a release %q: \"runlevel list -A\" lists all releases",
			f.name)
	case len(namespaces) > 1:
		return "", core.Misusef("release %s has records in several namespaces: set --record-namespace to one of %s",
			f.name, strings.Join(namespaces, ", "))
	}
	_, isFound, err := record.NewStore(c.Client, namespaces[0], f.name).Load(ctx)
	if err == nil && !isFound {
		err = fmt.Errorf("namespace %s has no record of a release %q: \"runlevel list -A\" lists all releases",
			namespaces[0], f.name)
	}
	return "/releases/" + namespaces[0] + "/" + f.name, err
}

// errIdle ends the server.
var errIdle = errors.New("idle")

// shutdownTimeout limits the wait for requests at the end.
const shutdownTimeout = 2 * time.Second

// serve serves the pages until the context ends, or until no page was open for some time.
func (f *flags) serve(ctx context.Context, s *server.Server, page string, streams core.Streams) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", f.port))
	if err != nil {
		var reason *net.OpError
		if errors.As(err, &reason) {
			err = reason.Err
		}
		return core.Misusef("--port %d: %w: choose another port, or omit the flag", f.port, err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	local := server.NewLocal(port)
	s.Access = local
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if f.idle > 0 {
		s.WhenIdle(f.idle, func() { stop(errIdle) })
	}
	connections, failed := s.HTTP(), make(chan error, 1)
	go func() { failed <- connections.Serve(listener) }()
	report := Report{Address: local.Address(page)}
	if err := f.format.Print(streams.Out, report, func(out io.Writer) error {
		return core.PrintLines(out, []string{report.Address})
	}); err != nil {
		return errors.Join(err, connections.Close())
	}
	if f.format == core.Text {
		fmt.Fprintln(streams.Err, "press Ctrl-C to end")
	}
	if !f.noOpen {
		defer openBrowser(report.Address, port, streams.Err)()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if context.Cause(ctx) == errIdle {
		fmt.Fprintf(streams.Err, "ended: no page was open for %s\n", f.idle)
	}
	s.End("\"runlevel ui\" has ended. Run it again, and open the address that it prints.")
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if connections.Shutdown(limited) != nil {
		_ = connections.Close() // a browser that does not take its answer
	}
	return nil
}
