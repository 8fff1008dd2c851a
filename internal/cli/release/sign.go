package release

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/oci"
	"github.com/runlevel/runlevel/internal/release/signature"
	"github.com/runlevel/runlevel/internal/release/signature/sigstore"
	"github.com/runlevel/runlevel/internal/release/signature/simplesigning"
)

const signHelp = `Sign the image of a release with keys from files. IMAGE is an image in a registry, an OCI image
layout, or an archive of one. It is signed by its digest.

No consumer reads all formats of signatures, so each key signs in all of its formats:

  cosign   an image with the tag sha256-DIGEST.sig beside IMAGE: CRI-O, podman, bootc, cosign 2
  bundle   a manifest that refers to IMAGE: cosign 3
  openpgp  a message in a folder, which a web server serves, or in a ConfigMap: OpenShift's
           cluster-version operator; CRI-O and podman

The operator of runlevel reads all formats. Signatures of other keys stay. OpenPGP messages are
written first; what was written is printed even if a later signature fails.

A password of the key is read from COSIGN_PASSWORD, or RUNLEVEL_OPENPGP_PASSWORD for the OpenPGP key,
or asked on the terminal.

Exit codes: 0; 1 if a signature could not be written; 2 if a key can't be read.`

// formatOpenPGP is the format of OpenPGP messages.
const formatOpenPGP sigstore.Format = "openpgp"

// signFlags are the flags of runlevel release sign.
type signFlags struct {
	key        string
	openpgpKey string
	openpgpTo  string
	identity   string
	insecure   bool
	format     core.Output
}

// SignReport is the output of runlevel release sign.
type SignReport struct {
	Image      string          `json:"image"`
	Digest     string          `json:"digest"`
	Identity   string          `json:"identity"` // name of the image in the signatures
	Signatures []SignedSummary `json:"signatures"`
}

// A SignedSummary is a signature that was written.
type SignedSummary struct {
	Format sigstore.Format `json:"format"`
	Key    string          `json:"key"` // ID of the key
	Place  string          `json:"place"`
}

// newSign returns the verb sign.
func newSign(streams core.Streams) *cobra.Command {
	var f signFlags
	command := &cobra.Command{
		Use:   "sign IMAGE",
		Short: "Sign the image of a release",
		Long:  signHelp,
		Example: `  # Once: a key pair, cosign.key and cosign.pub
  cosign generate-key-pair

  runlevel release sign registry.example/shop:1.4.0 --key cosign.key

  # Also for clusters that verify OpenPGP messages, which a web server serves
  gpg --output release-key.gpg --export-secret-keys release@example.com
  runlevel release sign registry.example/shop:1.4.0 --key cosign.key \
    --openpgp-key release-key.gpg --openpgp-to ./signatures

  # Before it is pushed, with the name that it will have
  runlevel release sign ./shop.tar --key cosign.key --identity registry.example/shop:1.4.0`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: core.CompletePaths(1, cobra.ShellCompDirectiveDefault),
		RunE: func(command *cobra.Command, args []string) error {
			return f.run(command.Context(), args[0], streams)
		},
	}
	core.AddOutput(command, &f.format, core.Text, core.JSON, core.YAML)
	flags := command.Flags()
	flags.StringVar(&f.key, "key", "", "the `file` of a private key in PEM, also as cosign encrypts it")
	flags.StringVar(&f.openpgpKey, "openpgp-key", "",
		"the `file` of an OpenPGP secret key, as gpg --export-secret-keys writes it")
	flags.StringVar(&f.openpgpTo, "openpgp-to", "",
		"the `folder` to write the OpenPGP message to, or FILE.yaml for a ConfigMap")
	flags.StringVar(&f.identity, "identity", "",
		"the `name` of the image in signatures, by which nodes compare it (default: IMAGE, if it is in a registry)")
	flags.BoolVar(&f.insecure, "insecure", false, core.InsecureUsage)
	return command
}

// check refuses flags that contradict each other.
func (f *signFlags) check() error {
	switch {
	case f.key == "" && f.openpgpKey == "":
		return core.Misusef("pass a key: --key for cosign's formats, --openpgp-key for OpenPGP")
	case (f.openpgpKey == "") != (f.openpgpTo == ""):
		return core.Misusef("--openpgp-key and --openpgp-to belong together: a registry can't store OpenPGP messages")
	default:
		return nil
	}
}

// A signing is one run of the verb.
type signing struct {
	*signFlags
	private *sigstore.PrivateKey // nil without --key
	signer  *signature.Signer    // nil without --openpgp-key
	claim   simplesigning.Claim
	report  SignReport
}

func (f *signFlags) run(ctx context.Context, image string, streams core.Streams) error {
	if err := f.check(); err != nil {
		return err
	}
	location, err := oci.Parse(image, f.insecure)
	if err != nil {
		return core.Misusef("%s: %w", image, err)
	}
	identity := cmp.Or(f.identity, location.String())
	if f.identity == "" && !location.IsRegistry() {
		return core.Misusef("%s is not in a registry: pass --identity with the name that it will have, as in "+
			"registry.example/shop:1.4.0", image)
	}
	if _, err := oci.ParseRegistry(identity, f.insecure); err != nil {
		return core.Misusef("--identity %s: %w", identity, err)
	}
	s := signing{signFlags: f, claim: simplesigning.Claim{Reference: identity, Time: time.Now()}}
	if err := s.readKeys(ctx, streams); err != nil {
		return err
	}
	s.report.Image, s.report.Identity = image, identity
	failed := s.sign(ctx, location)
	if failed != nil {
		failed = fmt.Errorf("sign %s: %w", image, failed)
	}
	if len(s.report.Signatures) == 0 {
		return failed
	}
	return errors.Join(failed, f.format.Print(streams.Out, s.report, s.report.print))
}

// readKeys reads the keys, before anything is written.
func (s *signing) readKeys(ctx context.Context, streams core.Streams) error {
	err := readKey(s.key, func(text []byte) (err error) {
		s.private, err = sigstore.ParsePrivateKey(text, func() ([]byte, error) {
			return streams.AskPassword(ctx, "COSIGN_PASSWORD", s.key)
		})
		return err
	})
	if err == nil {
		err = readKey(s.openpgpKey, func(text []byte) (err error) {
			s.signer, err = signature.ReadSigner(text, func() ([]byte, error) {
				return streams.AskPassword(ctx, "RUNLEVEL_OPENPGP_PASSWORD", s.openpgpKey)
			})
			return err
		})
	}
	return core.ReadError(ctx, err)
}

// readKey reads the key of a file; none without a file.
func readKey(file string, parse func(text []byte) error) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = parse(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, oci.WithoutPath(err))
	}
	return nil
}

func (s *signing) sign(ctx context.Context, location oci.Location) (err error) {
	images, err := oci.Create(ctx, location, oci.Options{Insecure: s.insecure})
	if err != nil {
		return err
	}
	defer images.Close()
	described, err := images.Resolve(ctx, location.Identifier)
	if err != nil {
		return err
	}
	platforms, err := platformsOf(ctx, images, described)
	switch {
	case err != nil:
		return err
	case len(platforms) > signature.MaxPlatforms:
		return fmt.Errorf("index %s has more than %d images, which is the limit", described.Digest,
			signature.MaxPlatforms)
	}
	s.report.Digest = described.Digest.String()
	digests := append([]string{s.report.Digest}, platforms...) // nodes verify the image of their platform
	if s.signer != nil {
		if err := s.writeMessages(digests); err != nil {
			return err
		}
	}
	if s.private == nil {
		return nil
	}
	messages := len(s.report.Signatures)
	if err = s.attach(ctx, images, described, digests); err == nil {
		err = images.Commit(ctx)
	}
	if err != nil && !location.IsRegistry() { // nothing was committed
		s.report.Signatures = s.report.Signatures[:messages]
	}
	return err
}

// writeMessages writes OpenPGP messages.
func (s *signing) writeMessages(digests []string) error {
	for _, digest := range digests {
		s.claim.Digest = digest
		message, err := s.signer.Sign(s.claim)
		if err != nil {
			return err
		}
		file, err := signature.AddTo(s.openpgpTo, digest, message)
		if err != nil {
			return err
		}
		s.add(formatOpenPGP, s.signer.ID(), file)
	}
	return nil
}

// attach writes the signatures beside the image.
func (s *signing) attach(ctx context.Context, images oci.Target, described v1.Descriptor, digests []string) error {
	for _, digest := range digests {
		s.claim.Digest = digest
		if err := s.private.Attach(ctx, images, s.claim); err != nil {
			return err
		}
		s.add(sigstore.Attachment, s.private.Hint(), strings.Replace(digest, ":", "-", 1)+".sig")
	}
	s.claim.Digest = s.report.Digest
	if err := s.private.AddBundle(ctx, images, described, s.claim); err != nil {
		return err
	}
	s.add(sigstore.Bundle, s.private.Hint(), "referrer of "+s.report.Digest)
	return nil
}

func (s *signing) add(format sigstore.Format, key, place string) {
	s.report.Signatures = append(s.report.Signatures, SignedSummary{format, key, place})
}

// platformsOf returns the digests of the images of an index; none of an image.
func platformsOf(ctx context.Context, images oci.Store, described v1.Descriptor) ([]string, error) {
	if !described.MediaType.IsIndex() {
		return nil, nil
	}
	raw, err := images.Manifest(ctx, described)
	if err != nil {
		return nil, err
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("index %s: %w", described.Digest, err)
	}
	var digests []string
	for _, image := range index.Manifests {
		isOther := image.Platform != nil && image.Platform.OS == "unknown" // such as provenance
		if digest := image.Digest.String(); !isOther && !slices.Contains(digests, digest) {
			digests = append(digests, digest)
		}
	}
	return digests, nil
}

func (r *SignReport) print(out io.Writer) error {
	lines := []string{fmt.Sprintf("signed %s as %s", r.Digest, r.Identity)}
	for _, signed := range r.Signatures {
		lines = append(lines, fmt.Sprintf("  %-8s %s (key %s)", signed.Format, signed.Place, signed.Key))
	}
	return core.PrintLines(out, lines)
}
