package updates

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/internal/updates/service"
)

const serveHelp = `Serve the update graphs of a folder, and take the reports of clusters. Clusters read
URL/graph?channel=CHANNEL&arch=ARCHITECTURE, as of OpenShift's update service; the paths of
"runlevel updates build" work as well. The folder may change while it is served: a mistake in it is
logged, and the graphs stay as they were.

With --reports, clusters that are allowed to send reports send them to URL/reports. They are
appended to a file. When more clusters have failed than the phase of a version allows, the version
is halted: a line is appended to halts.yaml, which "runlevel updates build" honors as well.
"runlevel updates resume" ends the halt.

Anyone who reaches the service can send reports, and so halt an update. With --report-token-file,
only those who know the token can; "after" in a phase needs it. Clusters send the token as the
password in the URL of the service. The log has the address that each report came from.

Without a certificate, the service speaks plain HTTP: put it behind a proxy with TLS. It logs to
standard error, and ends cleanly with SIGTERM. /healthz and /metrics are for monitoring.

Exit codes: 0 after SIGTERM or Ctrl-C; 1 if it can't serve; 2 if the folder or a flag can't be used.

` + folderHelp

// serveFlags are the flags of runlevel updates serve.
type serveFlags struct {
	listen, certFile, keyFile string
	reports, tokenFile, state string
	maxAge                    time.Duration
}

// newServe returns the verb serve.
func newServe(streams core.Streams) *cobra.Command {
	var f serveFlags
	command := &cobra.Command{
		Use:   "serve DIR",
		Short: "Serve update graphs, and halt an update that fails on clusters",
		Long:  serveHelp,
		Example: `  runlevel updates serve ./graph-data --listen 127.0.0.1:8080

  # With reports, over TLS; the folder is a checkout that only Git changes
  runlevel updates serve ./graph-data --tls-cert tls.crt --tls-key tls.key \
    --reports /var/lib/updates/reports.jsonl --report-token-file token --state /var/lib/updates`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeFolder(nil),
		RunE: func(command *cobra.Command, args []string) error {
			return f.serve(command.Context(), args[0], streams)
		},
	}
	all := command.Flags()
	all.StringVar(&f.listen, "listen", ":8443", "the `address` to listen on")
	all.StringVar(&f.certFile, "tls-cert", "", "the `file` with the certificate; it is read again when it changes")
	all.StringVar(&f.keyFile, "tls-key", "", "the `file` with the key of the certificate")
	all.StringVar(&f.reports, "reports", "", "take reports, and append them to this `file`")
	all.StringVar(&f.tokenFile, "report-token-file", "", "the `file` with the token that reports need")
	all.StringVar(&f.state, "state", "", "the `folder` in which halts.yaml is written (default: DIR)")
	all.DurationVar(&f.maxAge, "max-age", time.Minute, "for how long caches may keep a graph, which delays a halt")
	for _, name := range []string{"tls-cert", "tls-key", "reports", "report-token-file"} {
		_ = command.RegisterFlagCompletionFunc(name, core.CompleteFiles)
	}
	_ = command.MarkFlagDirname("state")
	return command
}

func (f *serveFlags) serve(ctx context.Context, folder string, streams core.Streams) error {
	if _, err := read(folder); err != nil {
		return err
	}
	options := service.Options{
		Folder: folder, State: f.state, Reports: f.reports, MaxAge: f.maxAge, Now: time.Now,
		Log: func(line string) {
			fmt.Fprintln(streams.Err, time.Now().UTC().Format(time.RFC3339), printable.Line(line))
		},
	}
	switch {
	case (f.certFile == "") != (f.keyFile == ""):
		return core.Misusef("pass both --tls-cert and --tls-key, or none")
	case f.tokenFile != "" && f.reports == "":
		return core.Misusef("--report-token-file needs --reports, the file for the reports")
	case f.tokenFile != "":
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return core.Misusef("--report-token-file: %w", err)
		}
		if options.Token = strings.TrimSpace(string(text)); options.Token == "" {
			return core.Misusef("--report-token-file %s is empty", f.tokenFile)
		}
	}
	s, err := service.New(options)
	if err != nil {
		return err
	}
	var network net.ListenConfig
	listener, err := network.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return core.Misusef("--listen %s: %w", f.listen, err)
	}
	scheme := "http"
	if f.certFile != "" {
		scheme = "https"
	}
	options.Log(fmt.Sprintf("serving %s at %s://%s", filepath.Clean(folder), scheme, listener.Addr()))
	return s.Serve(ctx, listener, f.certFile, f.keyFile)
}

// judgeReports judges the reports of a service for graphs that are built now, and writes its halts into the folder.
func judgeReports(data *graphdata.Data, folder, reports string, streams core.Streams) error {
	if reports == "" {
		return nil
	}
	if _, err := os.Stat(reports); err != nil {
		return core.Misusef("--reports: %w", err)
	}
	halts, skipped, err := service.Judge(data, reports, time.Now())
	if err != nil {
		return core.Misusef("--reports: %w", err)
	}
	for _, line := range skipped {
		fmt.Fprintln(streams.Err, printable.Line(line))
	}
	for _, halt := range halts {
		if err := graphdata.AppendHalt(folder, halt); err != nil {
			return err
		}
		fmt.Fprintln(streams.Err, printable.Line(fmt.Sprintf("halted %s: %s", halt.To, halt.Reason)))
	}
	return nil
}
