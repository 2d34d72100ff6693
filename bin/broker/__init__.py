"""Real Kafka brokers on this machine, without Docker: `bin/kafka`.

A *cluster* is a folder: `cluster.json` says what it is, and each broker has a folder of its own in it. Nothing runs
beside the brokers; whether one is alive is told by a lock that its process holds as long as it lives.
"""
