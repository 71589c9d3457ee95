"""What exists, as data: the topics, the ladder and the flow; how a cluster is made to agree; and a local broker to run it on."""
