// Command extension-external is a runtime extension of Cluster API that hands the update of a machine to a script: for
// a shop with hosts of its own, which has scripts for that already.
//
// It is an example of an extension. Package extensionserver serves HTTP; this program calls the script and reads its
// exit code. The script gets the hook's request, as JSON, on its standard input, and in its environment HOOK, NAMESPACE
// and MACHINE (of CanUpdateMachineSet the MachineSet), and of UpdateMachine VERSION and PROVIDER_ID. README.md lists
// its exit codes.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	hooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/runlevel/runlevel/pkg/extensionserver"
)

// again is the exit code (EX_TEMPFAIL) with which a script requests another call.
const again = 75

// timeout is how long a call of the script may take: a little less than the timeout of the hook.
const timeout = 25 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var serving extensionserver.ServingFlags
	serving.AddFlags(flag.CommandLine)
	s := &script{}
	flag.StringVar(&s.path, "script", "./update.sh", "the program that is called")
	flag.Parse()
	server := &extensionserver.Server{
		CanUpdateMachineSet: s.canUpdateMachineSet, CanUpdateMachine: s.canUpdateMachine,
		UpdateMachine: s.updateMachine, TimeoutSeconds: 30,
	}
	if err := server.Serve(ctx, serving); err != nil {
		fmt.Fprintln(os.Stderr, "extension-external:", err)
		os.Exit(1)
	}
}

// A script is the program that does the work.
type script struct{ path string }

// run calls the script, and returns its output and its exit code. If the script fails, its output is the error.
func (s *script) run(ctx context.Context, request any, environment ...string) (string, int, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := json.Marshal(request)
	if err != nil {
		return "", 0, err
	}
	command := exec.CommandContext(limited, s.path)
	command.Env, command.Stdin = append(os.Environ(), environment...), bytes.NewReader(text)
	command.WaitDelay = time.Second // for children that outlive it
	output, err := command.CombinedOutput()
	message := strings.TrimSpace(string(output))
	var ended *exec.ExitError
	switch {
	case limited.Err() != nil:
		return "", 0, fmt.Errorf("%s has not ended within %s", s.path, timeout)
	case errors.As(err, &ended) && ended.ExitCode() == again:
		return message, again, nil
	case errors.As(err, &ended):
		return "", 0, errors.New(cmp.Or(message, s.path+" ended with "+ended.String()))
	}
	return message, 0, err
}

// canUpdateMachineSet calls the script to check a change. The exit code is 0 if the script can make the whole change in
// place, and 75 if machines must be replaced.
func (s *script) canUpdateMachineSet(ctx context.Context, request *hooksv1.CanUpdateMachineSetRequest,
	response *hooksv1.CanUpdateMachineSetResponse) error {
	set := request.Desired.MachineSet
	message, code, err := s.run(ctx, request, "HOOK=CanUpdateMachineSet", "NAMESPACE="+set.Namespace,
		"MACHINE="+set.Name)
	if response.Message = message; err != nil || code != 0 {
		return err
	}
	response.MachineSetPatch = specOf(set)
	response.InfrastructureMachineTemplatePatch = specOf(request.Desired.InfrastructureMachineTemplate)
	response.BootstrapConfigTemplatePatch = specOf(request.Desired.BootstrapConfigTemplate)
	return nil
}

// canUpdateMachine is the same for one machine.
func (s *script) canUpdateMachine(ctx context.Context, request *hooksv1.CanUpdateMachineRequest,
	response *hooksv1.CanUpdateMachineResponse) error {
	machine := request.Desired.Machine
	message, code, err := s.run(ctx, request, "HOOK=CanUpdateMachine", "NAMESPACE="+machine.Namespace,
		"MACHINE="+machine.Name)
	if response.Message = message; err != nil || code != 0 {
		return err
	}
	response.MachinePatch = specOf(machine)
	response.InfrastructureMachinePatch = specOf(request.Desired.InfrastructureMachine)
	response.BootstrapConfigPatch = specOf(request.Desired.BootstrapConfig)
	return nil
}

// specOf returns the patch that sets the spec of an object to the desired one, which covers all of the change. There
// may be no object.
func specOf(desired any) hooksv1.Patch {
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	text, err := json.Marshal(desired)
	if err != nil || json.Unmarshal(text, &object) != nil || object.Spec == nil {
		return hooksv1.Patch{}
	}
	patch := append(append([]byte(`[{"op":"replace","path":"/spec","value":`), object.Spec...), "}]"...)
	return hooksv1.Patch{PatchType: hooksv1.JSONPatchType, Patch: patch}
}

// updateMachine calls the script to begin an update, or to continue with it. Exit code 75 means that the update is not
// done; a number at the beginning of the output is the number of seconds until the next call.
func (s *script) updateMachine(ctx context.Context, request *hooksv1.UpdateMachineRequest,
	response *hooksv1.UpdateMachineResponse) error {
	var host struct{ Spec struct{ ProviderID string } }
	_ = json.Unmarshal(request.Desired.InfrastructureMachine.Raw, &host) // there may be no host
	machine := request.Desired.Machine
	message, code, err := s.run(ctx, request, "HOOK=UpdateMachine", "NAMESPACE="+machine.Namespace,
		"MACHINE="+machine.Name,
		"VERSION="+machine.Spec.Version, "PROVIDER_ID="+cmp.Or(machine.Spec.ProviderID, host.Spec.ProviderID))
	if response.Message = message; code == again {
		first, rest, _ := strings.Cut(message, " ")
		response.RetryAfterSeconds = 10
		if seconds, err := strconv.ParseInt(first, 10, 32); err == nil && seconds > 0 {
			response.RetryAfterSeconds, response.Message = int32(seconds), rest
		}
	}
	return err
}
