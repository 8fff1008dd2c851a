package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/runlevel/runlevel/internal/sandbox"
	"github.com/runlevel/runlevel/pkg/cluster"
)

// ownCluster makes a control plane for this script alone, because it changes what others have
// in common: own-cluster
func ownCluster(ts *testscript.TestScript, _ bool, _ []string) {
	s, err := sandbox.Start(context.Background(), sandbox.Options{Name: ts.Getenv("NAME")})
	ts.Check(err)
	ts.Defer(func() { ts.Check(s.Stop()) })
	c, err := cluster.Connect(s.Config)
	ts.Check(err)
	g := &guest{c, s, "script-" + ts.Name(), map[string]string{}, 0}
	*ts.Value(guestKey{}).(*guest) = *g
	ts.Setenv("KUBECONFIG", g.kubeconfig(ts, "kubeconfig", ""))
}

// serveRegistry starts a registry with one image, of the files of a folder, and says where in
// $REGISTRY, and in $DIGEST which image that is: registry REPOSITORY:TAG FOLDER
func serveRegistry(ts *testscript.TestScript, _ bool, args []string) {
	server := httptest.NewTLSServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	ts.Defer(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	ts.Check(os.WriteFile(ts.MkAbs("registry.crt"), certificate, 0o644))
	host := strings.TrimPrefix(server.URL, "https://")
	image, err := imageOf(os.DirFS(ts.MkAbs(args[1])))
	ts.Check(err)
	ref, err := name.ParseReference(host + "/" + args[0])
	ts.Check(err)
	ts.Check(remote.Write(ref, image, remote.WithTransport(server.Client().Transport)))
	digest, err := image.Digest()
	ts.Check(err)
	ts.Setenv("SSL_CERT_FILE", ts.MkAbs("registry.crt"))
	ts.Setenv("REGISTRY", host)
	ts.Setenv("DIGEST", digest.String())
}

// imageOf returns an image with one layer, which has all files.
func imageOf(files fs.FS) (v1.Image, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := archive.AddFS(files); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	packed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(empty.Image, packed)
}
