"""All tests: units, the contract suite, recorded runs, the reference model, simulation, faults and end to end."""
