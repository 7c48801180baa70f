"""What the page and the history get of the cluster that `nsqd_py.cluster` observes.

recording  copies figures to the history after each round                     pure
views      the JSON that the page gets                                        pure
"""
