package main

import (
	"context"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// ownCluster starts a control plane for this script alone, because the script changes objects that other scripts share,
// or prints objects that they change: own-cluster
func ownCluster(ts *testscript.TestScript, _ bool, _ []string) {
	sandboxtest.NeedControlPlane(ts.Value("t").(testing.TB))
	s, err := sandbox.Start(context.Background(), sandbox.Options{Name: ts.Getenv("NAME"), AuditPolicy: auditPolicy})
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.Stop()) })
	enterSandbox(ts, s)
}

// skipUnlessThorough skips a script that "make test" does not run: thorough
func skipUnlessThorough(ts *testscript.TestScript, _ bool, _ []string) {
	sandboxtest.SkipUnlessThorough(ts.Value("t").(testing.TB))
}

// serveRegistry starts a registry with one image of the files of a folder, and sets $REGISTRY
// to its address and $DIGEST to the digest of the image: registry REPOSITORY:TAG FOLDER
func serveRegistry(ts *testscript.TestScript, _ bool, args []string) {
	served := imageregistry.StartTLS()
	ts.Defer(served.Close)
	image, err := served.Push(context.Background(), args[0], os.DirFS(ts.MkAbs(args[1])))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("registry.crt"), served.Certificate(), 0o644))
	ts.Setenv("SSL_CERT_FILE", ts.MkAbs("registry.crt"))
	ts.Setenv("REGISTRY", served.Host)
	ts.Setenv("DIGEST", image.DigestStr())
}
