// Nodepolicy asks the library of podman and CRI-O whether a policy lets a node of linux/amd64 pull an image.
//
//	nodepolicy POLICY.json REGISTRIES.D IMAGE
package main

import (
	"context"
	"fmt"
	"os"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"
)

func main() {
	if err := check(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("accepted")
}

func check(ctx context.Context, policyFile, registries, name string) error {
	policy, err := signature.NewPolicyFromFile(policyFile)
	if err != nil {
		return err
	}
	policies, err := signature.NewPolicyContext(policy)
	if err != nil {
		return err
	}
	ref, err := docker.ParseReference("//" + name)
	if err != nil {
		return err
	}
	system := &types.SystemContext{
		RegistriesDirPath: registries, DockerInsecureSkipTLSVerify: types.OptionalBoolTrue,
		SystemRegistriesConfPath: os.DevNull, BlobInfoCacheDir: os.TempDir(),
		OSChoice: "linux", ArchitectureChoice: "amd64",
	}
	source, err := ref.NewImageSource(ctx, system)
	if err != nil {
		return err
	}
	defer source.Close()
	pulled := image.UnparsedInstance(source, nil)
	raw, kind, err := pulled.Manifest(ctx)
	if err != nil {
		return err
	}
	if manifest.MIMETypeIsMultiImage(kind) {
		list, err := manifest.ListFromBlob(raw, kind)
		if err != nil {
			return err
		}
		digest, err := list.ChooseInstance(system)
		if err != nil {
			return err
		}
		pulled = image.UnparsedInstance(source, &digest)
	}
	_, err = policies.IsRunningImageAllowed(ctx, pulled)
	return err
}
