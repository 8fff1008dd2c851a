package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/client-go/util/cert"

	"github.com/runlevel/runlevel/internal/sandbox/imageregistry"
)

const (
	registryUser     = "shop"
	registryPassword = "secret"
)

// A privateRegistry stores the releases. It has a certificate of its own authority, and requires a password.
type privateRegistry struct {
	stage     *stage
	host      string // and port
	authority []byte
	transport http.RoundTripper
	isOpen    bool // it requires no password
	server    *http.Server
	handler   http.Handler
	pair      tls.Certificate
}

// newRegistry starts a registry that nodes and pods reach.
func (s *stage) newRegistry() *privateRegistry {
	s.t.Helper()
	address, _, err := net.SplitHostPort(s.sandbox.Registry)
	s.must(err)
	certificate, key, err := cert.GenerateSelfSignedCertKey(address, []net.IP{net.ParseIP(address)}, nil)
	s.must(err)
	pair, err := tls.X509KeyPair(certificate, key)
	s.must(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r := &privateRegistry{stage: s, host: net.JoinHostPort(address, "0"), authority: certificate, pair: pair}
	r.transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		user, password, _ := request.BasicAuth()
		if !r.isOpen && (user != registryUser || password != registryPassword) {
			w.Header().Set("WWW-Authenticate", `Basic realm="releases"`)
			http.Error(w, "a password is required", http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, request)
	})
	r.open()
	s.t.Cleanup(r.close)
	return r
}

// open listens: the first time at a free port.
func (r *privateRegistry) open() {
	r.stage.t.Helper()
	listener, err := tls.Listen("tcp4", r.host, &tls.Config{Certificates: []tls.Certificate{r.pair}})
	r.stage.must(err)
	r.host = listener.Addr().String()
	r.server = &http.Server{Handler: r.handler, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = r.server.Serve(listener) }()
}

// close ends the registry, which keeps its images.
func (r *privateRegistry) close() { _ = r.server.Close() }

// dockerConfig returns the credentials of the registry as the file config.json of Docker.
func (r *privateRegistry) dockerConfig() []byte {
	auth := base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + registryPassword))
	return fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, r.host, auth)
}

// trust gives the commands of the stage the authority and the password of the registry.
func (r *privateRegistry) trust() {
	r.stage.t.Helper()
	folder := r.stage.t.TempDir()
	r.stage.must(os.WriteFile(filepath.Join(folder, "config.json"), r.dockerConfig(), 0o600))
	r.stage.must(os.WriteFile(filepath.Join(folder, "authority.crt"), r.authority, 0o600))
	r.stage.env = append(r.stage.env, "DOCKER_CONFIG="+folder, "SSL_CERT_FILE="+filepath.Join(folder, "authority.crt"))
}

// push puts a release into the registry, and returns its image by digest.
func (r *privateRegistry) push(version string, files fs.FS) string {
	r.stage.t.Helper()
	tag, err := name.NewTag(r.host + "/shop/release:" + version)
	r.stage.must(err)
	image, err := imageregistry.ImageOf(files)
	r.stage.must(err)
	r.stage.must(remote.Write(tag, image, remote.WithTransport(r.transport),
		remote.WithAuth(&authn.Basic{Username: registryUser, Password: registryPassword})))
	return r.stage.byDigest(tag, image.Digest)
}

// pushRunlevel puts the image of Runlevel into the registry of the sandbox, and returns it by digest.
func (s *stage) pushRunlevel(label string) string {
	s.t.Helper()
	image := s.runlevelImage(label)
	tag, err := name.NewTag(s.sandbox.Registry+"/tools/runlevel:"+label, name.Insecure)
	s.must(err)
	s.must(remote.Write(tag, image))
	return s.byDigest(tag, image.Digest)
}

// runlevelImage returns the image of Runlevel. With another label, it has another digest.
func (s *stage) runlevelImage(label string) v1.Image {
	s.t.Helper()
	folder := os.Getenv(imageVariable)
	if folder == "" {
		s.t.Fatalf("%s is not set: \"make test-node\" makes the image, and sets it", imageVariable)
	}
	index, err := layout.ImageIndexFromPath(folder)
	s.must(err)
	manifest, err := index.IndexManifest()
	s.must(err)
	platforms, err := index.ImageIndex(manifest.Manifests[0].Digest)
	s.must(err)
	all, err := platforms.IndexManifest()
	s.must(err)
	image, err := platforms.Image(all.Manifests[0].Digest)
	s.must(err)
	image, err = mutate.Config(image, labelled(image, label))
	s.must(err)
	return image
}

// labelled returns the configuration of an image with another label.
func labelled(image v1.Image, label string) v1.Config {
	file, err := image.ConfigFile()
	if err != nil {
		return v1.Config{}
	}
	config := *file.Config.DeepCopy()
	config.Labels = map[string]string{"example.com/label": label}
	return config
}

func (s *stage) byDigest(tag name.Tag, digest func() (v1.Hash, error)) string {
	s.t.Helper()
	hash, err := digest()
	s.must(err)
	return strings.TrimSuffix(tag.Repository.Name(), "/") + "@" + hash.String()
}
