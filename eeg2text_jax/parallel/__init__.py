"""Device mesh, sharding rules and the arm axis of the grid."""
