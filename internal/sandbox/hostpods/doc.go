// Package hostpods runs pods of a sandbox as processes of this machine: for programs that are to run on
// a sandbox as they are shipped, with the command, the arguments, the environment, the volumes and the
// rights that their Deployment gives them.
//
// It is a small kubelet beside kwok. It takes the scheduled pods of one namespace that have some labels,
// runs a process for each of their containers, keeps that running, reports what it does in the pod's
// status, and removes the pod once its processes have ended. kwok simulates all other pods, and those that
// an annotation has fail, hang or the like.
//
// It is no container runtime: processes see this machine's files and network, and run as this user. A
// volume is a folder, and paths into it are rewritten in arguments and environment. Images, init
// containers, resources, liveness and startup probes, lifecycle hooks and security contexts are ignored,
// and containers are restarted whatever the pod's restart policy.
//
// Start is the call to start from.
package hostpods
