// Package hostpods runs pods of a sandbox as processes of this machine. Tests and the demo use it for programs that
// must run on a sandbox as they are shipped: with the command, the arguments, the environment, the volumes and the
// rights that their Deployment defines.
//
// It is a small kubelet beside kwok. It selects the scheduled pods of one namespace by their labels, runs a process
// for each of their containers, restarts the process when it exits, reports it in the pod's status, and deletes the
// pod after its processes have exited. kwok simulates all other pods, and those with an annotation that makes them
// fail or hang.
//
// It is not a container runtime: processes use this machine's files and network, and run as this user. A volume is a
// folder, and paths into it are rewritten in arguments and environment. Images, init containers, resources, liveness
// and startup probes, lifecycle hooks and security contexts are ignored, and containers are restarted whatever the
// pod's restart policy.
//
// Start is the function to start from.
package hostpods
